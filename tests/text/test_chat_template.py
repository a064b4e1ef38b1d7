from __future__ import annotations

import json

import pytest
from tests.text import tiny_tokenizers as tiny
from transformers import PreTrainedTokenizerFast

from anychip.errors import RequestError, UserError
from anychip.text.chat_template import ChatTemplate

SPECIAL = {"bos_token": "<s>", "eos_token": "<|im_end|>"}
MESSAGES = [
    {"role": "system", "content": 'Be <brief> & "kind".'},
    {"role": "user", "content": "  Naïve 日本?\n"},
    {"role": "assistant", "content": " So be it "},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d'é<", "parameters": {"b": 1, "a": [True]}}}]
TEMPLATES = {
    "chatml": tiny.TEMPLATE,
    "whitespace": "{%- for m in messages %}\n  {%- if m.role == 'user' %}\n {{ m.content }}\n{% endif %}\n{% endfor %}",
    "loop_controls": "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
    "tojson": "{{ tools | tojson }}{{ messages | tojson(indent=2) }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "date": "{{ strftime_now('%Y') }}{{ bos_token }}{{ eos_token }}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "variables": "{% if enable_thinking is defined and not enable_thinking %}no{% else %}yes{% endif %}",
    "methods": "{{ messages[0].content.split(' ')[0] }}{{ messages[1]['content'] | trim }}{{ dict(a=1) }}",
}


@pytest.fixture(scope="module")
def reference():
    return PreTrainedTokenizerFast(tokenizer_object=tiny.byte_level(), **SPECIAL)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_renders_what_transformers_renders(reference, name, prompt, tools):
    expected = reference.apply_chat_template(
        MESSAGES,
        tools=tools,
        chat_template=TEMPLATES[name],
        tokenize=False,
        add_generation_prompt=prompt,
        enable_thinking=False,
    )
    template = ChatTemplate(TEMPLATES[name], SPECIAL)
    assert template.render(MESSAGES, tools, prompt, variables={"enable_thinking": False}) == expected


@pytest.mark.parametrize("content", ["So be it", "So be it ", " So be"])
@pytest.mark.parametrize("trim", ["", " | trim"])
def test_continues_the_final_message(reference, content, trim):
    source = tiny.TEMPLATE.replace("message['content']", "message['content']" + trim)
    messages = [*MESSAGES[:2], {"role": "assistant", "content": content}]
    expected = reference.apply_chat_template(
        messages, chat_template=source, tokenize=False, continue_final_message=True
    )
    ours = ChatTemplate(source, SPECIAL).render(messages, add_generation_prompt=False, continue_final_message=True)
    assert ours == expected


def test_a_template_error_is_a_bad_request():
    for source in ("{{ raise_exception('roles must alternate') }}", "{{ messages[0].content + 1 }}", "{{ x.y.z }}"):
        with pytest.raises(RequestError) as caught:
            ChatTemplate(source, {}).render(MESSAGES)
        assert caught.value.param == "messages"
    assert "roles must alternate" in str(_error("{{ raise_exception('roles must alternate') }}"))


def _error(source: str) -> RequestError:
    with pytest.raises(RequestError) as caught:
        ChatTemplate(source, {}).render(MESSAGES)
    return caught.value


@pytest.mark.parametrize(
    "source",
    ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ cycler.__init__.__globals__ }}"],
)
def test_the_sandbox_holds(source):
    with pytest.raises(RequestError):
        ChatTemplate(source, {}).render(MESSAGES)


def test_a_syntax_error_is_found_at_load():
    with pytest.raises(UserError, match="line 2"):
        ChatTemplate("{{ a }}\n{% if %}", {})


def test_named_templates():
    template = ChatTemplate({"default": "plain", "tool_use": "with tools"}, {})
    assert template.render(MESSAGES) == "plain"
    assert template.render(MESSAGES, TOOLS) == "with tools"
    with pytest.raises(UserError, match="rag"):
        ChatTemplate({"rag": "x"}, {})


def test_text_parts_are_joined_unless_the_template_reads_parts():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [{"role": "user", "content": parts}]
    assert ChatTemplate("{{ messages[0].content }}", {}).render(messages) == "one\ntwo"
    looping = "{% for m in messages %}{% for part in m['content'] %}[{{ part.text }}]{% endfor %}{% endfor %}"
    assert ChatTemplate(looping, {}).render(messages) == "[one][two]"
    aliased = "{% set c = messages[0].content %}{% for part in c %}[{{ part.text }}]{% endfor %}"
    assert ChatTemplate(aliased, {}).render(messages) == "[one][two]"


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "content": 3},
        {"content": "no role"},
    ],
)
def test_content_that_cannot_be_read_is_a_bad_request(message):
    with pytest.raises(RequestError) as caught:
        ChatTemplate(tiny.TEMPLATE, SPECIAL).render([message])
    assert caught.value.param == "messages"


def test_missing_content_is_empty():
    rendered = ChatTemplate("{{ messages[0].content + '.' }}", {}).render([{"role": "assistant", "content": None}])
    assert rendered == "."


def test_fields_that_contradict_each_other():
    template = ChatTemplate(tiny.TEMPLATE, SPECIAL)
    with pytest.raises(RequestError) as caught:
        template.render(MESSAGES, continue_final_message=True)
    assert caught.value.param == "continue_final_message"
    with pytest.raises(RequestError) as caught:
        template.render(MESSAGES, variables={"messages": []})
    assert caught.value.param == "chat_template_kwargs"
    with pytest.raises(RequestError):
        template.render([])


def test_json_is_not_escaped():
    assert json.loads(ChatTemplate("{{ messages | tojson }}", {}).render(MESSAGES)) == MESSAGES
