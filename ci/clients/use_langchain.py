"""langchain-openai against a server of anychip: `python use_langchain.py BASE_URL`."""

from __future__ import annotations

import asyncio
import sys

from langchain_openai import ChatOpenAI, OpenAI

QUESTION = [("system", "Be short."), ("user", "What is the capital of France?")]


def main(base: str) -> None:
    """A chat, its stream, a batch, asynchronously, by the Responses API, and a completion."""
    shared = {"base_url": f"{base}/v1", "api_key": "none", "model": "demo", "temperature": 0}
    chat = ChatOpenAI(max_tokens=20, logprobs=True, **shared)
    answer = chat.invoke(QUESTION)
    assert "Paris" in answer.content, answer
    assert answer.usage_metadata["output_tokens"] > 0
    assert answer.response_metadata["logprobs"]["content"]
    assert "".join(chunk.content for chunk in chat.stream(QUESTION)) == answer.content
    assert [one.content for one in chat.batch([QUESTION] * 3)] == [answer.content] * 3
    assert asyncio.run(chat.ainvoke(QUESTION)).content == answer.content
    response = ChatOpenAI(max_tokens=20, use_responses_api=True, **shared).invoke(QUESTION)
    assert response.text == answer.content, response
    assert "Paris" in OpenAI(max_tokens=4, **shared).invoke("The capital of France is")


main(sys.argv[1])
