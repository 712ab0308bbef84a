"""Categories of tasks: 23 categories, their keywords, and what to gather for each.

Keywords decide only if they name exactly one category; otherwise a model is asked. Of overlapping keywords
only the longest counts, so "SQL injection" does not indicate databases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from tot_lab.core.reading.names import read_name

LOOKED_AT = 4_000
"""Characters of a task that are searched for keywords."""

GENERAL = "general"
"""The category of a task if none of `CATEGORIES` was found for it. It is never offered to a model."""


class Category(NamedTuple):
    """A category of tasks.

    Attributes:
        about: Description that the model is shown.
        keywords: Separated by commas. Plurals match too, and `*` stands for any ending.
        gather: The instruction that says what to look for.
        tools_first: Whether the prompt asks to use tools before answering.
    """

    about: str
    keywords: str
    gather: str
    tools_first: bool = False


CATEGORIES: dict[str, Category] = {
    "code_analysis": Category(
        "to understand or review existing code",
        "code review, codebase, code base, source code, refactor*, call graph, legacy code, dead code, "
        "code smell, pull request, code quality, static analysis, this function, this class, this module",
        "Read the code itself: what each part does, what calls what, which data goes where, and what it "
        "assumes. Quote the lines that matter, with file and line.",
        tools_first=True,
    ),
    "research": Category(
        "to find out what is known about a subject",
        "research*, literature, state of the art, arxiv, find out, look up, citation, peer-reviewed, "
        "latest findings, published studies, white paper, scientific paper",
        "Find what is known, from as many independent sources as are worth it: findings, figures with their "
        "year, and where sources contradict each other.",
    ),
    "planning": Category(
        "to plan steps, times and means",
        "plan, planning, schedule, scheduling, itinerary, agenda, timetable, roadmap, preparation, "
        "order of steps, time budget",
        "Find what a plan depends on: dates, durations, what must come before what, means and people that "
        "there are, and what cannot be moved.",
    ),
    "comparison": Category(
        "to weigh several things against each other",
        "compare, compares, compared, comparing, comparison, versus, vs, pros and cons, trade-off, tradeoff, "
        "difference between, better than, which is better, alternatives to, advantages and disadvantages",
        "Find, for each of the things that are compared, the same facts: what it can do, what it costs, "
        "where it fails, and who says so.",
    ),
    "debugging": Category(
        "to find the cause of a fault that shows",
        "debug*, traceback, stack trace, stacktrace, exception, error message, crash*, segfault, "
        "segmentation fault, root cause, does not work, doesn't work, stopped working, fails with, "
        "memory leak, hangs",
        "Look at the fault itself: the exact message, when it comes and when not, what was changed last, and "
        "the code or settings on the way to it.",
        tools_first=True,
    ),
    "ideation": Category(
        "to find new ideas",
        "brainstorm*, idea, come up with, invent, slogan, creative, creativity, imagine, names for, name for",
        "Find what exists already and what it lacks, what the people concerned want, and examples from "
        "fields far away.",
    ),
    "technical": Category(
        "to design or explain how a technical system works",
        "architecture, api design, protocol, algorithm, data structure, software design, system design, "
        "implement*, microservice, framework, software library, distributed system, programming language, "
        "api endpoint",
        "Find what the technology really offers: interfaces, limits, versions, and how others built such a "
        "thing.",
    ),
    "business": Category(
        "money, customers, markets, companies",
        "business, business plan, business model, revenue, market, customer, pricing, profit*, startup, "
        "sales, investor, competitor, invoice, b2b, turnover",
        "Find figures: size of the market, prices, costs, competitors, and what customers say; each with its "
        "date and source.",
    ),
    "writing": Category(
        "to write or improve a text",
        "essay, story, poem, blog post, letter, email, e-mail, article, cover letter, speech, novel, "
        "rewrite, proofread*, newsletter, press release, headline, paragraph",
        "Find what the text rests on: the facts that it must have right, who will read it, and the form, "
        "length and tone that are asked for.",
    ),
    "reasoning": Category(
        "to think a puzzle or an argument through",
        "puzzle, riddle, logic, logical*, deduce*, deduction, proof, prove, theorem, paradox, "
        "thought experiment, syllogism, fallacy, probability",
        "State what is given and what is asked, exactly; find definitions and known results, and check "
        "calculations.",
    ),
    "strategy": Category(
        "a long-term course among others who act too",
        "strategy, strategic*, long-term, go-to-market, competitive advantage, swot, positioning, "
        "vision statement, game theory, negotiation",
        "Find the position as it is: the aim, who else acts and what they want, means, constraints, and how "
        "similar courses ended.",
    ),
    "bug_hunting": Category(
        "to search code for faults that nobody has seen yet",
        "bug, bug hunt, bug hunting, off-by-one, edge case, race condition, undefined behaviour, "
        "undefined behavior, fuzz*, hidden fault, find defects",
        "Go through the code and look for faults: boundaries, empty and huge input, errors passed over, "
        "state that is shared. Quote each suspect place with file and line.",
        tools_first=True,
    ),
    "security_audit": Category(
        "to find what could be attacked",
        "security, vulnerability, exploit, penetration test*, pentest*, cve, threat model, sql injection, "
        "xss, csrf, owasp, malware, bug bounty, privilege escalation, attack surface, hardening",
        "Look at what can be attacked: input from outside, rights, secrets, versions with known "
        "vulnerabilities, and how each is guarded. Quote the evidence.",
        tools_first=True,
    ),
    "sysadmin": Category(
        "to run machines, their systems and networks",
        "linux, ubuntu, systemd, ssh, cron, cronjob, disk space, filesystem, file system, permission denied, "
        "sysadmin, system administrator, shell script, dns, nginx, firewall, server configuration",
        "Look at the machine as it is: system and versions, services and their state, settings, rights, "
        "disk, network, and what the logs say.",
        tools_first=True,
    ),
    "cloud_infra": Category(
        "to build or change what runs in a cloud",
        "aws, azure, gcp, google cloud, cloud, s3, ec2, terraform, vpc, load balancer, autoscal*, "
        "serverless, cloudformation, kubernetes, k8s",
        "Look at what there is: resources, their settings, regions, networks, limits and costs, and the "
        "files that describe them.",
        tools_first=True,
    ),
    "project_management": Category(
        "to lead people and work to a goal",
        "project management, project manager, project plan, sprint, scrum, kanban, backlog, milestone, "
        "stakeholder, gantt, deliverable, jira, sprint retrospective, risk register, user story",
        "Find where the work stands: what is done, what is open, who does what until when, risks, and what "
        "was promised to whom.",
    ),
    "qa_testing": Category(
        "to test software",
        "unit test*, integration test*, test case, test suite, test coverage, test plan, pytest, qa, "
        "quality assurance, acceptance test*, regression test*, load test*, flaky, end-to-end test*, "
        "selenium",
        "Look at what is tested and what is not: the tests that there are, what they check, what fails, and "
        "the behaviour that was promised.",
        tools_first=True,
    ),
    "devops": Category(
        "to build, release and deploy software",
        "devops, ci/cd, ci, continuous integration, continuous delivery, continuous deployment, docker*, "
        "deploy*, jenkins, github actions, gitlab, ansible, rollback, release process, build pipeline",
        "Look at how it is built and released: pipelines, images, scripts, environments, versions, and the "
        "last runs with what failed.",
        tools_first=True,
    ),
    "data_analysis": Category(
        "to find out what data say",
        "data analysis, dataset, data set, csv, statistic*, correlation, histogram, outlier, pandas, "
        "spreadsheet, time series, a/b test, data pipeline, linear regression, standard deviation",
        "Look at the data itself: columns, types, sizes, ranges, what is missing or strange; then calculate "
        "the figures that the question needs.",
        tools_first=True,
    ),
    "documentation": Category(
        "to write or find what documents a system",
        "documentation, docs, docstring, readme, user guide, user manual, api reference, changelog, "
        "tutorial, how-to, sphinx, mkdocs, release note",
        "Look at the thing that is documented and at what is written of it: names, parameters, defaults, "
        "examples that work, and where the two differ.",
        tools_first=True,
    ),
    "database": Category(
        "to design, query or tune a database",
        "database, sql, postgres*, mysql, sqlite, mongodb, query plan, foreign key, primary key, "
        "database schema, redis, orm, data model, stored procedure, table join",
        "Look at the database itself: tables, columns, types, keys, indexes, numbers of rows, the queries "
        "and their plans.",
        tools_first=True,
    ),
    "monitoring": Category(
        "to watch systems that run",
        "monitor*, alert*, prometheus, grafana, observability, uptime, latency, slo, sla, dashboard, "
        "incident, on-call, opentelemetry, log file",
        "Look at what the systems report: measures over time, alerts, logs around the time in question, and "
        "what is not watched at all.",
        tools_first=True,
    ),
    "other": Category(
        "everyday matters, and whatever fits nowhere else",
        "recipe, cook, cooking, holiday, vacation, birthday, wedding, garden*, hobby, gift, travel*, "
        "fitness, workout, diet, pet",
        "Find the facts that a good answer hangs on: what is wished for, what is there, and what to heed.",
    ),
}
"""All categories. Their names are the labels that a model is offered."""

_NO_CATEGORY = Category(
    "", "", "Find the facts that a good solution hangs on, and what is known of problems like it."
)


class Classified(NamedTuple):
    """The category of a task.

    Attributes:
        category: One of `CATEGORIES`, or `general`.
        by: What decided: `keywords` or `model`, or `default` if neither did.
        why: The reason, in words.
    """

    category: str
    by: str
    why: str


def category_of(name: str) -> Category:
    """The category of that name. An unknown name means `general`."""
    return CATEGORIES.get(name, _NO_CATEGORY)


def hits(text: str) -> dict[str, str]:
    """The categories whose keywords occur in the first `LOOKED_AT` characters of `text`, each with its first
    match."""
    found: dict[str, str] = {}
    for match in _KEYWORDS.finditer(text[:LOOKED_AT]):
        found.setdefault(_CATEGORY_OF[(match.lastindex or 1) - 1], " ".join(match[0].split()))
    return found


def categorise(text: str) -> Classified | None:
    """Classify a task by keywords. `None` if they match no category, or several."""
    found = hits(text)
    if len(found) != 1:
        return None
    ((category, word),) = found.items()
    return Classified(category, "keywords", f"it says {word!r}")


def read_category(text: str) -> str | None:
    """The category that a reply states: the `category` of its JSON, or a label in words.

    Labels are accepted in any near form (`Code Analysis`, `code-analysis`). Returns `None` for an unknown
    label, and for several (see `read_name`).
    """
    return read_name(text, _LABELS, "category")


def _with_endings(keyword: str) -> str:
    """The pattern of a keyword, with its plural and any separator between its words."""
    joined = r"[\s-]+".join(map(re.escape, re.split(r"[\s-]+", keyword.removesuffix("*"))))
    if keyword.endswith("*"):
        return rf"{joined}\w*"
    if re.search(r"[^aeiou]y$", keyword):
        return rf"{joined[:-1]}(?:y|ies)"
    return rf"{joined}(?:es)?" if re.search(r"(?:s|x|ch|sh)$", keyword) else f"{joined}s?"


def _keywords(categories: Mapping[str, Category]) -> list[tuple[str, str]]:
    """Each keyword and its category, the longest first."""
    pairs = [
        (keyword.strip(), name)
        for name, category in categories.items()
        for keyword in category.keywords.split(",")
    ]
    return sorted(pairs, key=lambda pair: -len(pair[0]))


_ORDERED = _keywords(CATEGORIES)
_CATEGORY_OF = [name for _, name in _ORDERED]
_KEYWORDS = re.compile(
    rf"\b(?:{'|'.join(f'({_with_endings(keyword)})' for keyword, _ in _ORDERED)})\b", re.IGNORECASE
)
_LABELS = {name: name for name in CATEGORIES}
