"""`allocator public`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from allocator import PublicIds
from allocator.cli import main

KEY = bytes(range(32)).hex()
OTHER = "ab" * 16


def run(*words: str, key: str | None = KEY, **environment: str) -> Result:
    return CliRunner().invoke(main, ["public", *words], env={"ALLOCATOR_PUBLIC_KEY": key, **environment})


def test_what_an_application_encoded_is_decoded():
    for text in ("base62", "crockford"):
        public = PublicIds(KEY, prefix="ord_", text=text)
        texts = [public.encode(id_) for id_ in (1, 2)]

        assert run("decode", *texts, "--prefix", "ord_", "--text", text).output == "1\n2\n"


def test_the_options_are_those_of_the_format():
    text = PublicIds(KEY, check=40, limit=2**53 - 1).encode(5)

    assert run("decode", text, "--limit", str(2**53 - 1), "--check", "40").output == "5\n"
    assert json.loads(run("decode", PublicIds(KEY).encode(5), "--json").output) == {"ids": ["5"]}


def test_older_keys_follow_the_one_in_use():
    texts = [PublicIds(key).encode(7) for key in (KEY, OTHER)]

    assert run("decode", *texts, key=f"{KEY} {OTHER}").output == "7\n7\n"


def test_the_key_may_be_in_a_file(tmp_path: Path):
    (tmp_path / "key").write_text(f"{KEY}\n")

    text = PublicIds(KEY).encode(1)

    assert run("decode", text, key=None, ALLOCATOR_PUBLIC_KEY_FILE=str(tmp_path / "key")).output == "1\n"


REFUSED = {
    "decode ch7CeG9133OA2RkV": "was altered or mistyped",
    "decode ch7CeG9133OA2RkUx": "error: a public id is 16 characters of 0-9 A-Z a-z, got 17",
    f"decode {PublicIds(OTHER).encode(1)}": "or made with another key",
    "decode x --check 99": "error: check must be 0 to 48, got 99",
}


def test_a_refusal_is_one_sentence():
    for words, sentence in REFUSED.items():
        done = run(*words.split())

        assert (done.exit_code, done.stderr.count("\n")) == (1, 1), words
        assert sentence in done.stderr


def test_without_a_key_the_command_is_not_understood():
    for key in (None, "", " "):
        done = run("decode", "x", key=key)

        assert done.exit_code == 2, key
        assert "ALLOCATOR_PUBLIC_KEY is not set" in done.stderr
