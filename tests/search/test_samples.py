"""No two thoughts of a run share a sample, and each keeps its own in a branch, a replay and a resumed run."""

import asyncio
from collections import Counter

import pytest
from support import ROOT, SEARCHES, Scripted, wait
from support.endpoint import ScriptedEndpoint

import tot_lab as tl
from tot_lab.core.calls import Call
from tot_lab.core.purposes import ROLES

PROPOSALS = {*ROLES["propose"]} - {"rollout"}


def proposals(run, node=None):
    """(node, sample index) of each proposal, in program order."""
    calls = [event for event in run.events if isinstance(event, Call) and event.purpose in PROPOSALS]
    return [(call.node, call.sample_index) for call in calls if node in (None, call.node)]


def requests(run):
    """How often each sample of a request was asked for."""
    return Counter(
        (call.messages, call.model, call.temperature, call.attempt, call.sample_index)
        for call in run.events
        if isinstance(call, Call) and call.purpose in PROPOSALS
    )


class Twins(tl.domains.General):
    """Every thought says the same, so the thoughts of a level have equal prompts."""

    kind = "test_samples.twins"

    def read_sample(self, task, path, text):
        return text.partition(" ")[0]


TWINS = tl.Task(domain=Twins(), question="?")


def model(call):
    return "0.5" if call.purpose == "value" else "same 1"


def beam(**settings):
    axes = {"propose": tl.Sample(count=2), "search": tl.BeamSearch(width=None), "stop": tl.Stop(depth=2)}
    return tl.TreeOfThoughts(**axes | settings)


def searched(search, task=TWINS, **settings):
    return wait(tl.Lab(Scripted(model), runs=None, **settings).run(search, task))


@pytest.mark.parametrize("parallel", [True, False])
def test_equal_prompts_of_two_thoughts_continue_in_the_order_of_the_pick(parallel):
    made = searched(beam(parallel=parallel))
    assert proposals(made) == [("0", 0), ("0", 1), ("0.0", 0), ("0.0", 1), ("0.1", 2), ("0.1", 3)]


def test_different_prompts_begin_at_0_so_that_sweeps_share_their_samples():
    made = wait(tl.Lab("sim/game24", runs=None).run(beam(), tl.game24("4 5 6 10")))
    assert all(proposals(made, id)[0] == (id, 0) for id in ("0", "0.0", "0.1"))


@pytest.mark.parametrize("temperature", [0, 0.0])
@pytest.mark.parametrize("where", ["strategy", "proposer", "role", "purpose"])
def test_at_temperature_0_equal_prompts_share(temperature, where):
    search = {
        "strategy": beam(temperature=float(temperature)),
        "proposer": beam(propose=tl.Sample(count=2, temperature=temperature)),
    }
    roles = {"role": {"propose": {"temperature": 0.0}}, "purpose": {"sample": {"temperature": 0.0}}}
    made = searched(search.get(where, beam()), roles=roles.get(where))
    assert proposals(made)[2:] == [("0.0", 0), ("0.0", 1), ("0.1", 0), ("0.1", 1)]
    assert wait(made.replay()).identical


def test_a_role_fills_in_only_what_the_strategy_leaves_open():
    """A temperature of the strategy decides, so that its samples are not shared."""
    made = searched(beam(temperature=0.7), roles={"propose": {"temperature": 0.0}})
    assert proposals(made)[2:] == [("0.0", 0), ("0.0", 1), ("0.1", 2), ("0.1", 3)]


@pytest.mark.parametrize("where", ["strategy", "proposer"])
def test_a_mixture_of_other_temperatures_does_not_share(where):
    inner = tl.Sample(count=2, temperature=0 if where == "proposer" else None)
    mixed = tl.proposers.Mixture(temperatures=(0.7, 1.0), proposer=inner)
    made = searched(beam(propose=mixed, temperature=0.0 if where == "strategy" else None))
    assert max(requests(made).values()) == 1
    cold = searched(beam(propose=mixed.with_(temperatures=(0.0,))))
    assert proposals(cold)[2:] == [("0.0", 0), ("0.0", 1), ("0.1", 0), ("0.1", 1)]


def test_a_further_expansion_continues_after_all_thoughts_with_that_prompt():
    def again(state):
        children = yield tl.Pick([state.root], 2)
        yield tl.Pick(children, [1, 2])
        yield tl.Pick(children, [2, 1])

    made = searched(beam(search=again))
    assert proposals(made, "0.0") == [("0.0", 0), ("0.0", 3), ("0.0", 4)]
    assert proposals(made, "0.1") == [("0.1", 1), ("0.1", 2), ("0.1", 5)]


def test_parse_retries_are_reserved_with_the_samples():
    """A retry of the first thought never takes what the second has, whichever reply comes first."""

    class Picky(Twins):
        kind = "test_samples.picky"

        def read_sample(self, task, path, text):
            return None if path and text.endswith(" 1") else "same"

    def numbered(call):
        return "0.5" if call.purpose == "value" else f"same {call.sample_index}"

    search = beam(propose=tl.Sample(count=2, max_parse_retries=1))
    task = tl.Task(domain=Picky(), question="?")
    made = wait(tl.Lab(Scripted(numbered), runs=None).run(search, task))
    assert proposals(made, "0.0") == [("0.0", 0), ("0.0", 1), ("0.0", 2)]
    assert proposals(made, "0.1") == [("0.1", 3), ("0.1", 4)]


@pytest.mark.parametrize("propose", ["propose", "sample"])
@pytest.mark.parametrize("kind", SEARCHES)
def test_no_search_gives_two_thoughts_one_sample(kind, propose):
    """Twins at every depth, in every search, with equal texts and with several expansions of one thought."""
    search = tl.TreeOfThoughts(propose=propose, search=kind(), stop=tl.Stop(depth=3, nodes=40, solved=None))

    def twins(call):
        if call.purpose == "propose":
            return "1. same\n2. same\n3. other"
        return "0.5" if call.purpose == "value" else ("same" if call.sample_index % 2 else "other") + " x"

    made = wait(tl.Lab(Scripted(twins), runs=None).run(search, TWINS))
    assert sum(requests(made).values()) > 2
    assert [request for request, times in requests(made).items() if times > 1] == []
    assert wait(made.replay()).identical


def test_a_strategy_with_a_tree_of_its_own_gives_no_sample_twice():
    strategy = tl.TreeThenAct(propose=tl.Sample(count=2), max_depth=2, breadth=2)
    made = wait(tl.Lab(Scripted(model), runs=None).run(strategy, TWINS))
    assert len(proposals(made)) > 3
    assert max(requests(made).values()) == 1


def test_the_samples_do_not_depend_on_latencies():
    def slow(order):
        async def answer(call):
            await asyncio.sleep(0.002 * ((call.sample_index * order) % 7))
            return model(call)

        return wait(tl.Lab(answer, runs=None).run(beam(stop=tl.Stop(depth=3)), TWINS))

    assert slow(1).events == slow(5).events


def test_two_runs_of_one_lab_share_their_samples_through_the_cache(tmp_path):
    """The counter belongs to a run: sample k of a request is the same reply in every run."""
    end = ScriptedEndpoint()
    end._reply = model
    lab = tl.Lab(end, runs=None, cache=tmp_path)
    wait(lab.run(beam(), TWINS))
    asked = len(end._requests)
    wait(lab.run(beam(propose=tl.Sample(count=2), answer="best"), TWINS))
    assert len(end._requests) == asked


# Branches.


def numbered_twins(call):
    """All thoughts of a level have the same text, and their children tell which sample they are."""
    if call.purpose == "value":
        return "0.5"
    return (
        "twin x" if "(no steps" in call.prompt or "twin" not in call.prompt else f"child{call.sample_index} x"
    )


@pytest.fixture
def branchable(tmp_path):
    lab = tl.Lab(Scripted(numbered_twins), runs=tmp_path)
    return lab, wait(lab.run(beam(), TWINS))


def test_editing_one_twin_leaves_the_other_its_samples(branchable):
    lab, made = branchable
    assert [made.tree[id].text for id in ("0.1.0", "0.1.1")] == ["child2", "child3"]
    branched = wait(lab.branch(made, "0.0", content="edited"))
    assert proposals(branched, "0.1") == [("0.1", 2), ("0.1", 3)]
    assert [branched.tree[id].text for id in ("0.1.0", "0.1.1")] == ["child2", "child3"]


def test_a_thought_edited_into_a_twin_of_another_takes_samples_of_its_own(tmp_path):
    def apart(call):
        if call.purpose == "value":
            return "0.5"
        return f"{'first' if call.sample_index == 0 else 'second'} x"

    lab = tl.Lab(Scripted(apart), runs=tmp_path)
    made = wait(lab.run(beam(), TWINS))
    assert proposals(made)[2:] == [("0.0", 0), ("0.0", 1), ("0.1", 0), ("0.1", 1)]
    branched = wait(lab.branch(made, "0.0", content="second"))
    assert proposals(branched, "0.1") == [("0.1", 0), ("0.1", 1)]
    assert proposals(branched, "0.0") == [("0.0", 2), ("0.0", 3)]


def test_a_branch_is_replayed_without_its_parent_and_resumed_with_it(branchable, tmp_path):
    lab, made = branchable
    branched = wait(lab.branch(made, "0.0", content="edited"))
    assert wait(tl.load(branched.path).replay()).identical
    lines = branched.path.read_bytes().splitlines(keepends=True)
    for length in range(2, len(lines)):
        branched.path.write_bytes(b"".join(lines[:length]))
        resumed = wait(tl.Lab(Scripted(numbered_twins), runs=tmp_path).resume(branched.path))
        assert resumed.events == branched.events


def test_a_branch_of_a_branch_keeps_what_both_have(branchable):
    lab, made = branchable
    second = wait(lab.branch(wait(lab.branch(made, "0.0", content="edited")), "0.0.0", content="again"))
    assert proposals(second, "0.1") == [("0.1", 2), ("0.1", 3)]


def test_a_system_prompt_and_roles_do_not_hide_the_recorded_samples(tmp_path):
    lab = tl.Lab(
        Scripted(numbered_twins),
        runs=tmp_path,
        system_prompt="Be brief.",
        roles={"propose": {"max_tokens": 9}},
    )
    made = wait(lab.run(beam(), TWINS))
    branched = wait(lab.branch(made, "0.0", content="edited"))
    assert proposals(branched, "0.1") == proposals(made, "0.1") == [("0.1", 2), ("0.1", 3)]


@pytest.mark.parametrize("length", [2, 30, 60, 90])
def test_a_resumed_run_takes_the_samples_of_an_uninterrupted_one(tmp_path, length):
    lab = tl.Lab("sim/game24", runs=tmp_path)
    search = tl.TreeOfThoughts(
        propose=tl.Sample(count=1), search=tl.searches.ParticleFilter(particles=6), stop=tl.Stop(depth=3)
    )
    made = wait(lab.run(search, tl.game24("4 5 6 10")))
    events, lines = made.events, made.path.read_bytes().splitlines(keepends=True)
    made.path.write_bytes(b"".join(lines[:length]))
    assert wait(lab.resume(made.path)).events == events


# Journals of earlier versions.


def test_a_journal_of_the_schema_before_replays_resumes_and_branches(tmp_path):
    """Two particles of it share a sample, as they did then."""
    golden = tl.load(ROOT / "tests/golden/journal-schema-3-particle-filter.jsonl")
    assert golden.header.tot_lab == 3
    assert max(requests(golden).values()) == 2
    assert wait(golden.replay()).identical
    path = tmp_path / "run.jsonl"
    text = golden.path.read_text().splitlines(keepends=True)
    path.write_text("".join(text[:40]))
    lab = tl.Lab(tl.sim.SimGame24(skill=0.6), runs=tmp_path)
    assert wait(lab.resume(path)).events == golden.events
