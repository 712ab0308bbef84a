"""Draws the README's picture anew, from a real run (needs Chromium)."""

import asyncio
import shutil
import subprocess
import tempfile
from pathlib import Path

import tot_lab as tl

TARGET = Path(__file__).parent.parent / "data" / "first_search.png"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
FLAGS = (
    "--headless --no-sandbox --disable-gpu --hide-scrollbars --disable-background-networking --disable-sync"
)


async def main() -> None:
    search = tl.TreeOfThoughts(generate="propose", branch_factor=4, beam_width=2)
    player = tl.SimGame24(skill=0.5, noise=0.2, garble=0.1)
    run = await tl.Lab(player, runs=None).run(search, tl.game24("4 5 6 10"))
    figure = tl.plot_tree(run).update_layout(width=1100, height=620)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "figure.html"
        page.write_text(
            f"<body style='margin:0'>{figure.to_html(full_html=False, config={'displayModeBar': False})}"
        )
        command = [CHROMIUM, *FLAGS.split(), f"--user-data-dir={folder}/profile", "--window-size=1100,620",
                   "--virtual-time-budget=5000", f"--screenshot={TARGET}", page.as_uri()]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    asyncio.run(main())
