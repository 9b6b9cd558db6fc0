"""`make mutants`: every mutant of the catalogue against the tests named for it; the report is reports/mutants.md."""

import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from support.servers.available import Server, Servers
from tqdm import tqdm

from mutants.catalogue import Mutant, catalogue
from mutants.trial import KILLED, UNTRIED, Verdict, end_all, try_mutant, try_unchanged

REPORT = Path("reports") / "mutants.md"
AT_ONCE = 2
WIDEST = 110
"""Characters of a reason in the report."""


def main(named: Sequence[str]) -> int:
    """All of them, or those whose name contains one of the given words."""
    chosen = [one for one in catalogue() if not named or any(word in one.name for word in named)]
    servers = Servers()
    servers.start({one.server for one in chosen if one.server})
    urls = {f"ALLOCATOR_TEST_{kind.upper()}_URL": s.url for kind, s in servers.found.items() if isinstance(s, Server)}
    try:
        controls = control(chosen, urls)
        found = trials(chosen, urls, {kind for kind, s in servers.found.items() if not isinstance(s, Server)})
        lines = servers.lines()
    finally:
        servers.stop()
    write(chosen, found, controls, lines)
    bad = [one for one in controls if one.outcome == "BROKEN"] + [one for one in found.values() if not one.good]
    print(*(f"{one.name}: {one.outcome} {one.by} {one.words}" for one in bad), sep="\n")
    killed = sum(one.outcome == KILLED for one in found.values())
    print(f"{killed} of {len(chosen)} mutants killed, {len(bad)} not; the report is {REPORT}")
    return 1 if bad or not chosen else 0


def control(chosen: Iterable[Mutant], urls: dict[str, str]) -> list[Verdict]:
    """All tests that are named, where nothing was changed."""
    groups: dict[str, dict[str, None]] = {}
    for one in chosen:
        groups.setdefault(one.selection, {}).update(dict.fromkeys(one.tests))
    tests = [partial(try_unchanged, tuple(tests), selection, urls) for selection, tests in groups.items()]
    return try_each(tests, "control")


def trials(chosen: Sequence[Mutant], urls: dict[str, str], absent: set[str]) -> dict[str, Verdict]:
    """By name. One whose server cannot be had counts as one that was not killed."""
    found = {one.name: Verdict(one.name, UNTRIED, "", f"there is no {one.server}") for one in chosen}
    possible = [one for one in chosen if one.server not in absent]
    found.update({one.name: one for one in try_each([partial(try_mutant, one, urls) for one in possible], "mutants")})
    return found


def try_each(trials: Sequence[Callable[[], Verdict]], what: str) -> list[Verdict]:
    """An interrupt ends the trials and the processes that they have started."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tried = [pool.submit(one) for one in trials]
        try:
            return [one.result() for one in tqdm(as_completed(tried), total=len(tried), desc=what, disable=None)]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            end_all()
            raise


def write(
    chosen: Sequence[Mutant], found: dict[str, Verdict], controls: Iterable[Verdict], servers: Iterable[str]
) -> None:
    """The report: what was tried, on which servers, and which test noticed it."""
    REPORT.parent.mkdir(exist_ok=True)
    killed = sum(verdict.good for verdict in found.values())
    lines = [
        "# Mutants",
        "",
        f"{datetime.now(UTC).isoformat(' ', 'seconds')}: {killed} of {len(chosen)} killed.",
        "",
        *(f"- {line}" for line in servers),
        *(f"- {one.name}: {one.outcome}, {one.words.splitlines()[-1]}" for one in controls),
        "",
        "| mutant | rule | outcome | by | because | s |",
        "|---|---|---|---|---|---:|",
    ]
    for one in chosen:
        verdict = found[one.name]
        because = verdict.words[:WIDEST].replace("|", "\\|")
        by = verdict.by.removeprefix("tests/")
        lines.append(f"| {one.name} | {one.rule} | {verdict.outcome} | {by} | {because} | {verdict.seconds:.1f} |")
    REPORT.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:]))
