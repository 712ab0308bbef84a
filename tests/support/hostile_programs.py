"""More than three hundred hostile Python programs, written from what the sandbox promises. Each attack runs
as it is and in an orphan in a session of its own; those on the lab and its network run in a thread, too.

The programs know `LAB` (process of the lab), `OUT` (a folder of the user's), `PORT`, `UDP`, `PATH_SOCKET` and
`ABSTRACT` (sockets of the lab). They print what they get hold of. What they write has `intruder` in its name.
Run them only behind namespaces of the test's own: `support.hostile` does.
"""

# ruff: noqa: E501

from __future__ import annotations

from textwrap import dedent, indent

SPIN = "while True: pass"
LIBC = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)"
NAP = "time.sleep(60)"
PYTHON = "[sys.executable, '-c', 'import time; time.sleep(60)']"

ESCAPES = {
    "setsid": f"os.fork() or (os.setsid(), {NAP})",
    "double fork": f"os.fork() or (os.setsid(), os.fork() or {NAP})",
    "daemon with closed files": f"""
        if os.fork() == 0:
            os.setsid(); os.chdir('/')
            if os.fork() == 0:
                os.closerange(0, 1024)
                {NAP}
            os._exit(0)
    """,
    "new process group": f"os.fork() or (os.setpgid(0, 0), {NAP})",
    "chain of forks": """
        for _ in range(30):
            if os.fork(): os._exit(0)
            os.setsid()
        time.sleep(60)
    """,
    "fork bomb": """
        for _ in range(200):
            try: os.fork() or time.sleep(60)
            except OSError: break
    """,
    "doubling forks": """
        for _ in range(6):
            try: os.fork()
            except OSError: pass
        time.sleep(60)
    """,
    "threads": """
        for _ in range(200):
            try: threading.Thread(target=time.sleep, args=(60,)).start()
            except Exception: break
    """,
    "spinning threads": f"""
        def spin():
            {SPIN}
        for _ in range(8): threading.Thread(target=spin, daemon=True).start()
        spin()
    """,
    "nohup": f"subprocess.Popen(['nohup', *{PYTHON}], start_new_session=True)",
    "popen without files": f"""
        subprocess.Popen({PYTHON}, start_new_session=True, stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    """,
    "shell in the background": "os.system('sleep 60 & sleep 60 & (setsid sleep 60 &)')",
    "setsid program": "os.system('setsid -f sleep 60')",
    "blocked signals": f"signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); {NAP}",
    "ignored signals": f"""
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        {NAP}
    """,
    "handler that goes on": f"""
        for number in (1, 2, 3, 15): signal.signal(number, lambda *_: os.fork() or {NAP})
        {NAP}
    """,
    "respawns at the end": f"atexit.register(lambda: os.fork() or (os.setsid(), {NAP}))",
    "chain of execs": """
        if int(os.environ.get('HOPS', '0')) < 20:
            code = 'import os, sys, time\\ntime.sleep(60)'
            os.environ['HOPS'] = '20'
            os.execv(sys.executable, [sys.executable, '-c', code])
    """,
    "exec of a shell": "os.execv('/bin/sh', ['sh', '-c', 'trap \"\" 1 2 15; sleep 60 & exec sleep 60'])",
    "parent death signal cleared": f"{LIBC}; libc.prctl(1, 0, 0, 0, 0); os.setsid() if os.fork() == 0 else 0; {NAP}",
    "subreaper": f"{LIBC}; libc.prctl(36, 1, 0, 0, 0); os.fork() or (os.setsid(), os.fork() or {NAP}); {NAP}",
    "clone with another parent": f"""
        {LIBC}
        # CLONE_PARENT | SIGCHLD: the child becomes a child of whoever started this program.
        if libc.syscall(56, 0x8000 | 17, 0, 0, 0, 0) == 0:
            os.setsid(); {NAP}
    """,
    "vfork and exec": f"os.posix_spawn(sys.executable, {PYTHON}, os.environ, setsid=True)",
    "stopped": "os.fork() or os.kill(os.getpid(), signal.SIGSTOP); os.kill(os.getpid(), signal.SIGSTOP)",
    "stopped parent": "os.kill(os.getppid(), signal.SIGSTOP)",
    "stopped group": "os.kill(0, signal.SIGSTOP)",
    "killed parent": "os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)",
    "killed group": "os.killpg(0, signal.SIGTERM); time.sleep(60)",
    "kill all": "os.kill(-1, signal.SIGKILL)",
    "term all": "signal.signal(15, signal.SIG_IGN); os.kill(-1, signal.SIGTERM); time.sleep(60)",
    "kill the lab": "os.kill(LAB, signal.SIGKILL)",
    "kill every number": """
        for pid in range(2, 400):
            if pid != os.getpid():
                try: os.kill(pid, signal.SIGKILL)
                except OSError: pass
    """,
    "own namespaces": "os.system('unshare --user --pid --fork --kill-child=0 sleep 60 &'); time.sleep(60)",
    "own namespace, orphaned": "subprocess.Popen(['unshare', '--user', '--pid', '--fork', 'sleep', '60'], start_new_session=True)",
    "enters the namespaces of the lab": f"""
        {LIBC}
        for kind in ('user', 'pid', 'mnt', 'net', 'ipc', 'uts'):
            try:
                fd = os.open(f'/proc/{{LAB}}/ns/{{kind}}', os.O_RDONLY)
                print(kind, libc.setns(fd, 0))
            except OSError as error: print(error)
        os.fork() or (os.setsid(), {NAP})
    """,
    "debugger of the lab": f"""
        {LIBC}
        print(libc.ptrace(0x4206, LAB, 0, 0), libc.ptrace(0x4207, LAB, 0, 0)); {NAP}
    """,
    "attach to the parent": f"""
        {LIBC}
        print(libc.ptrace(16, os.getppid(), 0, 0)); {NAP}
    """,
}

READING = """
def search(pid):
    try:
        memory = open(f'/proc/{pid}/mem', 'rb', 0)
        for line in open(f'/proc/{pid}/maps'):
            area, rights = line.split()[:2]
            begin, end = (int(x, 16) for x in area.split('-'))
            if 'rw' in rights and end - begin < 300 << 20:
                try:
                    memory.seek(begin)
                    text = memory.read(end - begin)
                except (OSError, ValueError, OverflowError):
                    continue
                for part in text.split(b'hostile' + b'-secret-')[1:]: print('hostile-secret-', part[:40])
    except OSError as error: print(error)
def look(path):
    try: print(open(path, 'rb').read(1 << 20).replace(b'\\0', b'\\n').decode(errors='replace'))
    except OSError as error: print(error)
"""

PARENT = {
    "environment of the lab": "look(f'/proc/{LAB}/environ')",
    "environment of the parent": "look(f'/proc/{os.getppid()}/environ')",
    "environment of all": "[look(p) for p in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline')]",
    "environment of its threads": "[look(p) for p in glob.glob(f'/proc/{LAB}/task/*/environ')]",
    "memory of the lab": "search(LAB)",
    "memory of the parent": "search(os.getppid())",
    "memory of all": "[search(int(p)) for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]",
    "own memory": "search(os.getpid())",
    "memory through a copied file": """
        pid = os.fork()
        if pid == 0: search(os.getppid()); search(LAB); os._exit(0)
        os.waitpid(pid, 0)
    """,
    "process_vm_readv": f"""
        {LIBC}
        class Vec(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('size', ctypes.c_size_t)]
        try:
            for line in open(f'/proc/{{LAB}}/maps'):
                begin, end = (int(x, 16) for x in line.split()[0].split('-'))
                size = min(end - begin, 64 << 20)
                to = ctypes.create_string_buffer(size)
                got = libc.process_vm_readv(LAB, ctypes.byref(Vec(ctypes.addressof(to), size)), 1,
                                            ctypes.byref(Vec(begin, size)), 1, 0)
                if got > 0:
                    for part in to.raw.split(b'hostile' + b'-secret-')[1:]: print('hostile-secret-', part[:40])
        except OSError as error: print(error)
    """,
    "writes to memory of the lab": """
        try:
            memory = open(f'/proc/{LAB}/mem', 'r+b', 0)
            for line in open(f'/proc/{LAB}/maps'):
                if '[heap]' in line:
                    memory.seek(int(line.split('-')[0], 16)); memory.write(b'\\xff' * (1 << 20))
        except OSError as error: print(error)
    """,
    "descriptors of the lab": """
        for path in glob.glob(f'/proc/{LAB}/fd/*'):
            try: print(path, os.readlink(path)); look(path) if os.path.isfile(path) else 0
            except OSError as error: print(error)
    """,
    "steals descriptors": f"""
        {LIBC}
        pidfd = libc.syscall(434, LAB, 0)
        for number in range(64):
            fd = libc.syscall(438, pidfd, number, 0)
            if fd >= 0:
                print('stolen', os.readlink(f'/proc/self/fd/{{fd}}'))
                try: os.lseek(fd, 0, 0); print(os.read(fd, 1 << 16))
                except OSError as error: print(error)
    """,
    "inherited descriptors": """
        for fd in range(3, 4096):
            try: kind = os.readlink(f'/proc/self/fd/{fd}')
            except OSError: continue
            try: os.set_blocking(fd, False); print(kind, os.read(fd, 1 << 16))
            except OSError as error: print(kind, error)
            try: os.write(fd, b'intruder' * 100)
            except OSError: pass
    """,
    "closes inherited descriptors": f"os.closerange(0, 4096); {NAP}",
    "folder of the lab": "print(os.listdir(f'/proc/{LAB}/cwd'), os.listdir(f'/proc/{LAB}/root'))",
    "root of the lab": "look(f'/proc/{LAB}/root/proc/{LAB}/environ'); open(f'/proc/{LAB}/root{OUT}/intruder', 'w')",
    "limits of the lab": """
        import resource
        for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):
            try: print(resource.prlimit(LAB, kind, (1, 1)))
            except OSError as error: print(error)
    """,
    "priority of the lab": "os.setpriority(os.PRIO_PROCESS, LAB, 19)",
    "processors of the lab": "os.sched_setaffinity(LAB, {max(os.sched_getaffinity(0))})",
    "scheduling of the lab": "os.sched_setscheduler(LAB, os.SCHED_IDLE, os.sched_param(0))",
    "killed first when memory is short": "open(f'/proc/{LAB}/oom_score_adj', 'w').write('1000')",
    "name of the lab": "open(f'/proc/{LAB}/comm', 'w').write('intruder')",
    "memory dump filter": "open(f'/proc/{LAB}/coredump_filter', 'w').write('0')",
}

FILES = {
    "absolute write": "open(OUT + '/intruder', 'w').write('x')",
    "absolute overwrite": "open(OUT + '/notes.txt', 'w').write('intruder')",
    "append": "open(OUT + '/notes.txt', 'a').write('intruder')",
    "delete": "os.unlink(OUT + '/notes.txt')",
    "delete the folder": "shutil.rmtree(OUT)",
    "rename": "os.rename(OUT + '/notes.txt', OUT + '/intruder')",
    "mode": "os.chmod(OUT + '/notes.txt', 0o4777)",
    "times": "os.utime(OUT + '/notes.txt', (0, 0))",
    "extended attribute": "os.setxattr(OUT + '/notes.txt', 'user.intruder', b'x')",
    "truncate": "os.truncate(OUT + '/notes.txt', 0)",
    "written through a map": "m = mmap.mmap(os.open(OUT + '/notes.txt', os.O_RDWR), 0); m[0] = 0; m.flush()",
    "symbolic link out": "os.symlink(OUT, 'link'); open('link/intruder', 'w').write('x')",
    "link in place of its folder": """
        here = os.getcwd(); os.chdir('/')
        os.rename(here, here + '-old'); os.symlink(OUT, here)
    """,
    "hard link": "os.link(OUT + '/notes.txt', 'mine'); open('mine', 'a').write('intruder')",
    "hard link outside": "open('f', 'w').write('x'); os.link('f', OUT + '/intruder')",
    "relative path": "open('../' * 30 + OUT.lstrip('/') + '/intruder', 'w').write('x')",
    "parent folder": "open('../intruder', 'w').write('x'); [shutil.rmtree('../' + n, True) for n in os.listdir('..')]",
    "folders beside its own": "[open(p + '/intruder', 'w') for p in glob.glob('../../*') if os.path.isdir(p)]",
    "temporary folder": "open('/tmp/intruder', 'w').write('x')",
    "other temporary folder": "open('/var/tmp/intruder', 'w').write('x')",
    "shared memory": "open('/dev/shm/intruder', 'w').write('x')",
    "named shared memory": "from multiprocessing import shared_memory as s; s.SharedMemory('intruder', True, 1000); os._exit(0)",
    "home": "open(os.path.expanduser('~/.intruder'), 'w').write('x')",
    "home of the lab": "[open(os.path.join(HOME, n), 'a').write('intruder') for n in ('.bashrc', '.profile', '.intruder')]",
    "user site": """
        folder = HOME + f'/.local/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages'
        os.makedirs(folder); open(folder + '/sitecustomize.py', 'w').write('intruder = 1')
    """,
    "compiled modules": "open(PACKAGE + '/__pycache__/intruder.pyc', 'wb').write(b'x')",
    "package": "open(PACKAGE + '/intruder.py', 'w').write('x')",
    "chroot": "os.mkdir('r'); os.chroot('r'); os.chdir('../' * 50); os.chroot('.'); open(OUT + '/intruder', 'w')",
    "mounted over": f"{LIBC}; print(libc.mount(b'tmpfs', OUT.encode(), b'tmpfs', 0, 0)); open(OUT + '/intruder', 'w')",
    "mounted writable again": f"""
        {LIBC}
        for place in ('/', OUT, os.path.dirname(OUT), '/tmp', HOME):
            print(libc.mount(b'none', place.encode(), None, 32 | 4096, 0))
        open(OUT + '/intruder', 'w').write('x')
    """,
    "unmounted": f"""
        {LIBC}
        for line in reversed(open('/proc/self/mounts').read().splitlines()):
            libc.umount2(line.split()[1].encode(), 2)
        open(OUT + '/intruder', 'w').write('x')
    """,
    "mounted in a namespace of its own": """
        script = f'mount -o remount,rw,bind {OUT}; mount -o remount,rw /; touch {OUT}/intruder'
        print(subprocess.run(['unshare', '--user', '--map-root-user', '--mount', 'sh', '-c', script]))
    """,
    "mounted writable by a root of its own": f"""
        {LIBC}
        libc.unshare(0x10020000)
        for place in ('/proc', '/dev', '/', '/tmp'):
            print(libc.umount2(place.encode(), 2), libc.mount(b'none', place.encode(), None, 32 | 4096, None))
        open(OUT + '/intruder', 'w').write('x')
    """,
    "device": "os.mknod(OUT + '/intruder', 0o20666, os.makedev(1, 3))",
    "pipe": "os.mkfifo(OUT + '/intruder')",
    "socket in a folder": "socket.socket(socket.AF_UNIX).bind(OUT + '/intruder')",
    "core dump": "os.chdir(OUT); import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()",
    "own folder removed": "shutil.rmtree(os.getcwd())",
    "own folder unreadable": "open('f', 'w'); os.mkdir('d'); open('d/f', 'w'); os.chmod('d', 0); os.chmod('.', 0)",
    "depth": "for _ in range(1500): os.mkdir('d'); os.chdir('d')",
    "names that are no text": "open(b'\\xff\\xfe\\n', 'w'); os.mkdir(b'\\xff' * 250)",
}

RESOURCES = {
    "memory": "x = 'a' * (3 << 30)",
    "memory slowly": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "memory in children": "for _ in range(4): os.fork() or (bytearray(300 << 20), time.sleep(60))",
    "anonymous files": "f = os.memfd_create('intruder'); os.write(f, b'x' * (1 << 20)); print(os.ftruncate(f, 1 << 40))",
    "descriptors": "x = []\nwhile True: x.append(os.open('/dev/null', 0))",
    "pipes": "x = []\nwhile True: x.append(os.pipe())",
    "many files": "for k in range(5000): open(str(k), 'w')",
    "large file": "f = open('f', 'wb')\nfor _ in range(300): f.write(b'x' * (1 << 20))",
    "many large files": "for k in range(30): open(str(k), 'wb').write(b'x' * (1 << 20))",
    "sparse file": "open('f', 'wb').truncate(1 << 40)",
    "output": "for _ in range(300): print('x' * (1 << 20))",
    "output for ever": "while True: os.write(1, b'x' * 65536)",
    "errors for ever": "while True: os.write(2, b'x' * 65536)",
    "output of a child": "os.fork() or [os.write(1, b'x') for _ in iter(int, 1)]",
    "busy": SPIN,
    "busy in C": "9 ** 9 ** 9",
    "busy in C with the lock": "sum(itertools.repeat(1, 10 ** 12))",
    "busy children": f"for _ in range(4):\n    if os.fork() == 0:\n        {SPIN}",
    "pattern": "re.match(r'(a+)+$', 'a' * 60 + 'b')",
    "recursion": "sys.setrecursionlimit(10 ** 8)\ndef f(): f()\nf()",
    "recursion in C": "sys.setrecursionlimit(10 ** 8)\nx = []\nfor _ in range(10 ** 6): x = [x]\nrepr(x)",
    "compiler": "compile('(' * 100000, 'x', 'eval')",
    "zip bomb": "import zlib; d = zlib.decompressobj()\nfor _ in range(99): x = zlib.decompress(zlib.compress(bytes(1 << 30)))",
    "number": "print(int('9' * 10 ** 7) if sys.set_int_max_str_digits(0) is None else 0)",
    "crash": "ctypes.string_at(0)",
    "killed by itself": "os.kill(os.getpid(), signal.SIGKILL)",
    "limits raised": """
        import resource
        for kind in range(16):
            try: resource.setrlimit(kind, (resource.RLIM_INFINITY,) * 2)
            except (OSError, ValueError): pass
        x = bytearray(1500 << 20); time.sleep(60)
    """,
    "no end": NAP,
    "reads for ever": "open(0).read(); os.read(os.pipe()[0], 1)",
}

IMPORTS = {
    "sitecustomize": "open('sitecustomize.py', 'w').write('import os; os.fork()'); subprocess.run([sys.executable, '-c', '1'])",
    "end that hangs": f"atexit.register(lambda: {NAP})",
    "thread that stays": f"threading.Thread(target=lambda: {NAP}).start()",
    "audit hook": f"sys.addaudithook(lambda *_: os.fork() if os.getpid() % 2 else None); {NAP}",
    "collector": "gc.collect(); [print(o) for o in gc.get_objects() if isinstance(o, dict) and 'LAB_SECRET' in o]",
    "modules": """
        sys.modules.clear()
        import os
        os._exit(0)
    """,
    "builtins": "import builtins; builtins.print = builtins.open = builtins.exec = None; raise SystemError('x')",
    "frames": """
        frame = sys._getframe()
        while frame: print({k: str(v)[:500] for k, v in {**frame.f_globals, **frame.f_locals}.items()}); frame = frame.f_back
    """,
    "exit in disguise": "print('passed'); sys.stdout.flush(); os._exit(0)",
    "output of another": "os.dup2(os.open('/dev/null', os.O_RDWR), 1); os.system('echo intruder > /proc/1/fd/1')",
}

NETWORK = {
    "TCP": "s = socket.create_connection(('127.0.0.1', PORT), 2); s.sendall(b'intruder')",
    "TCP over IPv6": "socket.create_connection(('::ffff:127.0.0.1', PORT), 2).sendall(b'intruder')",
    "UDP": "socket.socket(2, 2).sendto(b'intruder', ('127.0.0.1', UDP))",
    "raw": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).sendto(b'\\x08\\0\\xf7\\xff\\0\\0\\0\\0', ('127.0.0.1', 0))",
    "packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW).bind(('lo', 0))",
    "abstract socket": "s = socket.socket(1); s.connect('\\0' + ABSTRACT); s.send(b'intruder')",
    "names": "print(socket.getaddrinfo('localhost', PORT)); socket.getaddrinfo('example.invalid', 80)",
    "loopback raised": "os.system('ip link set lo up'); s = socket.create_connection(('127.0.0.1', PORT), 2); s.sendall(b'intruder')",
    "server that stays": "s = socket.create_server(('127.0.0.1', 0)); os.fork() or (os.setsid(), s.accept())",
    "network of the lab": f"{LIBC}; libc.setns(os.open(f'/proc/{{LAB}}/ns/net', 0), 0); socket.create_connection(('127.0.0.1', PORT), 2).sendall(b'intruder')",
}

ATTACKS = {**ESCAPES, **PARENT, **FILES, **RESOURCES, **IMPORTS, **NETWORK}

HEAD = """import atexit, ctypes, gc, glob, itertools, mmap, os, re, shutil, signal, socket, subprocess, sys, threading, time
"""


def ways(attack: str) -> dict[str, str]:
    """Return the programs that carry out an attack."""
    body = dedent(attack).strip() + "\n"
    orphan = (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        + indent(body, " " * 8)
        + "    os._exit(0)\ntime.sleep(0.3)\n"
    )
    fresh = (
        f"BODY = {body!r}\n"
        "def carry_out():\n    try: exec(HEAD + READING + VALUES + BODY, {'__name__': '__main__'})\n"
        "    except BaseException as error: print(error)\n"
        "thread = threading.Thread(target=carry_out); thread.start(); thread.join()\n"
    )
    return {"plain": body, "orphan": orphan, "thread": fresh}


def programs(values: dict[str, object]) -> dict[str, str]:
    """All programs, by name. `values` are the names that they know."""
    known = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    texts = f"HEAD, READING, VALUES = {HEAD!r}, {READING!r}, {known!r}\n"
    return {
        f"{name}, {way}": HEAD + READING + known + (texts if way == "thread" else "") + body
        for name, attack in ATTACKS.items()
        for way, body in ways(attack).items()
        if way != "thread" or name in {**PARENT, **NETWORK}
    }
