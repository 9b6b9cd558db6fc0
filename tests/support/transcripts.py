"""What is asked and what is answered, as texts: requests of a service, and commands.

A request is a line `METHOD /path BODY <Header: value> -> STATUS words … words`. `name: ` before the method sends the
token of that name. Words stand in the headers or the body, `= words` are all of the body, `not words` stand nowhere.
A line that begins with blanks belongs to the one before.

A command is a line `$ words`, or `1$ words` where it ends with that code, above what it prints: see `alike`.
"""

import re
import shlex
from collections.abc import Iterator, Mapping

from click.testing import CliRunner

from allocator.cli import main
from support.documents.reader import alike
from support.service.served import Reply, Served

REQUEST = re.compile(r"(?:(\w+): )?([A-Z]+) (\S+)(?: ([^<].*?))?((?: <[^>]*>)*) -> (\d+)(?: (.*))?")
COMMAND = re.compile(r"^(\d*)\$ (.*)\n((?:(?!\d*\$ ).*\n)*)", re.MULTILINE)


def wrong_commands(url: str, transcript: str, **names: str) -> list[str]:
    """The commands that print something else, with what they print. names: what stands in the transcript for what."""
    wrong = []
    for code, words, expected in COMMAND.findall(filled(transcript, names).lstrip()):
        done = CliRunner().invoke(main, shlex.split(words), env={"ALLOCATOR_DATABASE_URL": url})
        if done.exit_code != int(code or 0) or not alike(expected, done.output):
            wrong.append(f"$ {words}\nends with {done.exit_code}:\n{done.output}")
    return wrong


def wrong_answers(service: Served, story: str, tokens: Mapping[str, str] | None = None, **names: str) -> list[str]:
    """The lines that are answered otherwise, with the answer. names: what stands in the story for what."""
    lines = filled(story, names).strip().replace("\n  ", " ").splitlines()
    return [wrong for line in lines for wrong in faults(service, line, tokens or {})]


def filled(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace(name, value)
    return text


def faults(service: Served, line: str, tokens: Mapping[str, str]) -> Iterator[str]:
    found = REQUEST.fullmatch(line)
    assert found, line
    who, method, path, body, headers, status, words = found.groups()
    sent = dict(one.split(": ", 1) for one in re.findall("<([^>]*)>", headers))
    if body and body[0] in "{[":
        sent["Content-Type"] = "application/json"
    answer = service.ask(method, path, token=tokens[who] if who else None, body=body and body.encode(), **sent)
    if answer.status != int(status) or not all(stand_in(answer, one) for one in (words or "").split(" … ")):
        yield f"{line}\n  answered {answer.status} {answer.body.decode()[:500]} {dict(answer.headers)}"


def stand_in(answer: Reply, words: str) -> bool:
    if words.startswith("not "):
        return not stand_in(answer, words[4:])
    body = dense(answer.body.decode())
    if words.startswith("="):
        return dense(words[1:].strip()) == body
    return dense(words) in body or words in "\n".join(f"{name}: {value}" for name, value in answer.headers.items())


def dense(text: str) -> str:
    """JSON is written with and without blanks."""
    return re.sub(r"([,:]) ", r"\1", text)
