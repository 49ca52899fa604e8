"""Writes tests/ctxpack/vectors/: what this library makes today, so that a change of any byte shows in review.

    python tests/ctxpack/make_vectors.py          (test_vectors.py fails if the files differ from what this writes)

The texts are written for this purpose. The cases have the shape of those an independent implementation made, which
test_vectors.py runs too where they are at hand.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent / "vectors"

LINE = "The crane at berth four lifts again; the harbour office has the paper.\n"
LINE_ZH = "四号泊位的吊机又能用了，港务办公室已收到文件。\n"

TEXTS = {
    "empty": "",
    "one_character": "x",
    "no_line_feed_at_end": LINE + "open end",
    "growing": LINE * 30,
    "growing_zh": LINE_ZH * 20,
    "line_feeds": "\n" * 700,
    "carriage_returns": "one\r\ntwo\rthree\r\n" * 60,
    "other_breaks": "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\n" * 40,
    "line_of_the_limit": "x" * 511 + "\n" + "y" * 512 + "\n" + "z" * 513 + "\n",
    "long_line_then_short": "lead\n" + "w" * 1300 + "\nshort\nshort\n",
    "long_line_of_wide_characters": "始" * 400 + "\U0001f6a2" * 300 + "\n終\n",
    "long_line_open": "q" * 1500,
    "fills_exactly": ("n" * 127 + "\n") * 9,
    "byte_order_mark": "\ufeff" + LINE * 8,
    "controls": "\x00\x01\x1f\x7f" * 150 + "\n",
    "two_byte_counts_fit": "k" * 60 + "\n" + "m" * 452 + "\n" + "n" * 103,
}

CHANGES = {
    "append": (LINE * 14, LINE * 14 + "One line more.\n"),
    "append_zh": (LINE_ZH * 14, LINE_ZH * 15),
    "append_to_an_open_line": (LINE * 14 + "open", LINE * 14 + "open" + " end" * 300),
    "same": (LINE * 9, LINE * 9),
    "change_at_top": (LINE * 20, "!" + LINE * 20),
    "change_in_the_middle": (LINE * 20, LINE * 10 + "!" + LINE * 10),
    "shorter": (LINE * 20, LINE * 11),
    "to_empty": (LINE, ""),
    "from_empty": ("", LINE),
    "both_empty": ("", ""),
    "rewritten": (LINE * 9, LINE_ZH * 9),
    "next_line_shortened_until_it_fits": ("\n" + "始" * 170 + "始\n" + "t" * 600, "\n" + "始" * 170 + "\n" + "t" * 600),
}


def make() -> dict[str, list[dict[str, Any]]]:
    """Return the cases of each file, by file name."""
    from ctxpack import ContextPack, ContextPackDelta, ContextPackError, apply_delta

    packs = []
    for name, text in TEXTS.items():
        for limit in (512, 64, 4):
            pack = ContextPack.from_content(text, limit)
            sizes = [len(chunk) for chunk in pack.chunk_bytes]
            case = {"name": f"{name}/{limit}", "text": text, "max_chunk_bytes": limit, "chunk_sizes": sizes}
            packs.append({**case, "digest": pack.digest, "pack": pack.to_bytes().decode()} if limit > 4 else case)
    deltas = []
    for name, (before, after) in CHANGES.items():
        base, target = ContextPack.from_content(before), ContextPack.from_content(after)
        delta = ContextPackDelta.between(base, target)
        deltas.append({
            "name": name, "base_text": before, "target_text": after, "base": base.to_bytes().decode(),
            "target": target.to_bytes().decode(), "kept_chunks": delta.kept_chunks, "delta": delta.to_bytes().decode(),
        })  # fmt: skip
    refused = []
    for kind, name, data, code in _refused():
        case = {"object": kind, "name": name, "input": data, "code": code}
        base = ContextPack.from_content(LINE * 14)
        try:
            if kind == "pack":
                ContextPack.from_bytes(data.encode(), strict=False)
            else:
                apply_delta(base, ContextPackDelta.from_bytes(data.encode(), strict=False))
            case["accepted_when_not_strict"] = True
        except ContextPackError:
            case["accepted_when_not_strict"] = False
        refused.append({**case, "base": base.to_bytes().decode()} if kind == "apply" else case)
    return {"pack_v1.json": packs, "delta_v1.json": deltas, "refused_v1.json": refused}


def _refused() -> list[tuple[str, str, str, str]]:
    from ctxpack import ContextPack, ContextPackDelta

    base, target = ContextPack.from_content(LINE * 14), ContextPack.from_content(LINE * 15)
    pack = ContextPack.from_content("alpha\n").to_bytes().decode()
    delta = ContextPackDelta.between(base, target).to_bytes().decode()
    packs = [
        ("text", "alpha", "invalid_json"),
        ("cut_off", pack[:-1], "invalid_json"),
        ("more_follows", pack + pack, "invalid_json"),
        ("byte_order_mark", "\ufeff" + pack, "invalid_json"),
        ("twice_the_same_key", pack.replace('{"byte', '{"schema":"ctxpack.pack.v1","byte'), "invalid_json"),
        ("infinite", pack.replace(":6}", ":Infinity}"), "invalid_json"),
        ("null", "null", "invalid_type"),
        ("number", "7", "invalid_type"),
        ("string", '"pack"', "invalid_type"),
        ("no_fields", "{}", "missing_field"),
        ("delta_for_pack", delta, "missing_field"),
        ("one_field_more", pack.replace("}", ',"x":0}'), "unexpected_field"),
        ("schema_null", pack.replace('"ctxpack.pack.v1"', "null"), "schema_mismatch"),
        ("schema_upper_case", pack.replace("pack.v1", "PACK.v1"), "schema_mismatch"),
        ("count_as_text", pack.replace(":6}", ':"6"}'), "invalid_type"),
        ("count_as_null", pack.replace(":6}", ":null}"), "invalid_type"),
        ("count_negative", pack.replace(":6}", ":-6}"), "invalid_type"),
        ("digest_null", pack.replace('"digest":"', '"digest":null,"x":"'), "unexpected_field"),
        ("chunk_null", pack.replace('"YWxwaGEK"', "null"), "invalid_type"),
        ("base64_space", pack.replace("YWxwaGEK", "YWxw aGEK"), "invalid_base64"),
        ("base64_not_ascii", pack.replace("YWxwaGEK", "YWxwaGEé"), "invalid_base64"),
        ("base64_padding_inside", pack.replace("YWxwaGEK", "YQ==YQ=="), "invalid_base64"),
        ("base64_too_much_padding", pack.replace("YWxwaGEK", "YWxwaGEK===="), "invalid_base64"),
        ("surrogate_in_utf8", pack.replace("YWxwaGEK", "7aCA"), "invalid_utf8"),
        ("chunk_empty", pack.replace("YWxwaGEK", ""), "empty_chunk"),
        ("digest_without_name", pack.replace("sha256:", ""), "invalid_digest"),
        ("digest_line_feed", pack.replace('","schema', '\\n","schema'), "invalid_digest"),
        ("content_changed", pack.replace("YWxwaGEK", "YmV0YWEK"), "digest_mismatch"),
        ("total_off_by_one", pack.replace(":6}", ":7}"), "total_bytes_mismatch"),
        ("count_off_by_one", pack.replace(":171,", ":172,"), "byte_count_mismatch"),
        ("line_feed_after", pack + "\n", "not_canonical"),
        ("escaped", pack.replace("ctxpack.pack", "ctxpack\\u002epack"), "not_canonical"),
        ("keys_in_another_order", _reordered(pack), "not_canonical"),
        ("minus_zero", ContextPack.from_content("").to_bytes().decode().replace(":0}", ":-0}"), "not_canonical"),
    ]
    deltas = [
        ("pack_for_delta", pack, "missing_field"),
        ("kept_fraction", delta.replace('"kept_chunks":2', '"kept_chunks":1.5'), "invalid_type"),
        ("target_upper_case", delta[:-8] + delta[-8:].upper().replace("0", "A"), "invalid_digest"),
        ("keys_in_another_order", _reordered(delta), "not_canonical"),
    ]
    applied = [
        ("another_base", delta.replace(base.digest, target.digest), "base_mismatch"),
        ("keeps_too_much", delta.replace('"kept_chunks":2', '"kept_chunks":9'), "kept_out_of_range"),
        ("keeps_a_googol", delta.replace('"kept_chunks":2', '"kept_chunks":1' + "0" * 100), "kept_out_of_range"),
        ("keeps_too_little", delta.replace('"kept_chunks":2', '"kept_chunks":0'), "target_mismatch"),
        ("another_target", delta.replace(target.digest, base.digest), "target_mismatch"),
    ]
    named = (("pack", packs), ("delta", deltas), ("apply", applied))
    return [(kind, *case) for kind, cases in named for case in cases]


def _reordered(serialised: str) -> str:
    fields = json.loads(serialised)
    return json.dumps(dict(reversed(fields.items())), separators=(",", ":"))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    FOLDER.mkdir(exist_ok=True)
    for file, cases in make().items():
        (FOLDER / file).write_text(json.dumps(cases, ensure_ascii=True, indent=1) + "\n", encoding="utf-8")
