"""The reading of documents that the other tests here, and ci/readme.sh, rely on."""

from __future__ import annotations

from tests.docs.documents import Command, commands

from fences import fences

MARKDOWN = """
<!-- run -->
```bash
echo one
```

1. A step:

   <!-- needs: two chips -->
   ```bash
   echo two
     echo indented
   ```

```python
x = "<!-- run -->"
```
"""


def test_fences_carry_their_markers() -> None:
    first, second, third = fences(MARKDOWN)
    assert (first.marker, first.detail, first.text, first.line) == ("run", "", "echo one\n", 4)
    assert (second.marker, second.detail) == ("needs", "two chips")
    assert second.text == "echo two\n  echo indented\n"
    assert (third.language, third.marker) == ("python", "")


def test_commands_are_found_between_operators() -> None:
    assert commands("anychip bench serve --rate 2; anychip bench x") == [
        Command("bench serve", ("--rate",)),
        Command("bench", ()),
    ]
    text = 'A=1 anychip serve x --port=1 \\\n  --dtype "f16" & sleep 1 && anychip platforms | grep anychip\nanychip -h'
    assert commands(text) == [
        Command("serve", ("--port", "--dtype")),
        Command("platforms", ()),
        Command("", ("-h",)),
    ]


def test_a_command_in_a_comment_is_none() -> None:
    assert commands("echo anychip serve  # anychip nothing --at-all") == []
