"""Writes the texts that transformers 5.24 makes of conversations: python gen_chat_templates.py OUT [FOLDER].

OUT is a JSON list of {name, template, tokens, cases: [{messages, add_generation_prompt, variables, text or error,
generated}]}. The templates are written for this file, in the formats and with the constructs of the models they are
named after. With FOLDER, its *.jinja files are used instead, to compare the templates of models themselves.
"""
import glob
import json
import os
import re
import sys

from transformers.utils.chat_template_utils import render_jinja_template

CHATML = """{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}{% else %}{% set rest = messages %}{% set system = false %}{% endif %}
{% for message in rest %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('The roles user and assistant must alternate, not ' ~ message.role) }}
{% endif %}
{% if loop.index0 == 0 and system != false %}
{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}
{% else %}
{% set content = message['content'] %}
{% endif %}
{% if message['role'] == 'user' %}
{{- bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
{%- elif message['role'] == 'assistant' %}
{{- ' ' + content | trim + ' ' + eos_token }}
{%- endif %}
{% endfor %}"""
LLAMA3 = """{{- bos_token }}
{#- The date is fixed unless it is given. #}
{%- if not date_string is defined %}
    {%- if strftime_now is defined and false %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {%- for arg_name, arg_val in tool_call.arguments | items %}
            {{- arg_name + '="' + arg_val + '"' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if message.role in ["user", "assistant"] %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if (message == user_messages[-1]) and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported, with an exception of an initial optional system message!") }}
    {%- endif %}
{%- endfor %}
"""
QWEN3 = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
GEMMA = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {{ item['text'] | trim }}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"""
PHI3 = """{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'user' %}{{'<|user|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>
' + message['content'] + '<|end|>
'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}"""
DEEPSEEK = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{{ '<\uff5cUser\uff5c>' + message['content'] }}{%- endif %}{%- if message['role'] == 'assistant' and message['content'] is not none %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{ '<\uff5cAssistant\uff5c>' + content + '<\uff5cend\u2581of\u2581sentence\uff5c>' }}{%- endif %}{%- endfor -%}{% if add_generation_prompt %}{{ '<\uff5cAssistant\uff5c><think>\\n' }}{% endif %}"""
ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
"""
SMOLLM3 = """{%- if enable_thinking is not defined -%}
{%- set enable_thinking = true -%}
{%- endif -%}
{%- set mode = "/think" if enable_thinking else "/no_think" -%}
{%- macro header(role, end=false) -%}
{{ '<|im_start|>' ~ role ~ ('\\n' if not end) }}
{%- endmacro -%}
{{ header("system") -}}
Mode: {{ mode }}{{ "\\n" }}
{%- if messages[0].role == "system" %}{{ messages[0].content.replace("/system_override", "").rstrip() }}{% endif -%}
<|im_end|>
{%- for message in messages if message.role != "system" %}
{{ header(message.role) }}
{%- if message.role == "assistant" -%}
{%- generation -%}
{%- set body = message.content.lstrip("\\n") -%}
{%- if mode == "/think" %}{{ body }}{% else %}{{ "<think>\\n\\n</think>\\n" + body }}{% endif -%}
{{ '<|im_end|>' }}
{%- endgeneration -%}
{%- else -%}
{{ message.content + '<|im_end|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{ header("assistant", end=true) }}
{%- endif %}
"""
CHATML_TRAINING = """{%- for message in messages %}
{{- '<|im_start|>' ~ message.role ~ '\\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}{{- message.content ~ '<|im_end|>' }}{% endgeneration %}
{%- else %}
{{- message.content ~ '<|im_end|>' }}
{%- endif %}
{{- '\\n' }}
{%- endfor %}"""
GRANITE = """{%- if messages[0]['role'] == 'system' %}
 {%- set system_message = messages[0]['content'] %}
 {%- set loop_messages = messages[1:] %}
{%- else %}
 {%- set system_message %}
You are Granite.
{%- if tools and documents %} Both.{% elif tools %} Tools.{% else %} None.{% endif %}
 {%- endset %}
 {%- set loop_messages = messages %}
{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>
' }}
{%- for message in loop_messages %}
 {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + '<|end_of_text|>
' }}
 {%- if loop.last and add_generation_prompt %}
 {{- '<|start_of_role|>assistant' }}
 {%- if controls %}{{- ' ' + controls | tojson()}}{%- endif %}
 {{- '<|end_of_role|>' }}
 {%- endif %}
{%- endfor %}"""
# One line for each construct, with its result.
CONSTRUCTS = r"""{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 + 3 * 4 - 1 }} {{ 'a' ~ 1 ~ none ~ true }} {{ 'ab' * 2 }} {{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }}
{{ ([1, 2] + [3]) | length }} {{ 'é日🙂'|length }} {{ 'é日🙂'[1] }} {{ 'é日🙂'[::-1] }} {{ 'abcdef'[1:-1:2] }} {{ [1, 2, 3][-1] }} {{ [1][5] is defined }}
{{ none or 'x' }} {{ '' and y }} {{ not [] }} {{ 'b' in 'abc' }} {{ 'k' in {'k': 1} }} {{ 2 not in (1, 3) }} {{ nothing }} {{ nothing is undefined }}
{{ 'a,b,,c'.split(',') | join('|') }} {{ ' a  b '.split() | join('|') }} {{ 'a b c'.split(' ', 1)[1] }} {{ 'xxaxx'.strip('x') }} {{ ' q '.lstrip() }}.
{{ 'Title me' | title }} {{ 'ab' | upper }} {{ 'AB'.lower() }} {{ 'aB' | capitalize }} {{ 'aXbX'.replace('X', '--', 1) }} {{ 'ab'.startswith(('x', 'a')) }}
{{ {'b': [1, none, true], 'a': 'é"\\\nCTRL<'} | tojson }} {{ [] | tojson }} {{ {'a': {}, 'b': [1, {'c': 2}]} | tojson(indent=2) }}
{{ 'x' if false }}{{ 'y' if true else 'z' }} {{ 1 if 0 else 2 if 0 else 3 }} {{ nothing | default('d') }} {{ '' | default('e', true) }} {{ '' | default('f') }}.
{{ range(3) | join(',') }} {{ range(5, 1, -2) | join(',') }} {{ {'z': 1, 'B': 2}.items() | map('first') | join }} {{ {'z': 1, 'B': 2} | dictsort | map('last') | join }}
{% for k, v in {'p': 1, 'q': 2}.items() %}{{ loop.index }}{{ loop.revindex0 }}{{ k }}={{ v }}{{ loop.previtem[0] if loop.previtem is defined }}{{ loop.nextitem[0] if loop.nextitem }}{{ ', ' if not loop.last }}{% endfor %}
{% for i in range(9) if i % 2 %}{% if i == 3 %}{% continue %}{% elif i == 7 %}{% break %}{% endif %}{{ i }}{% set i = 0 %}{% endfor %}
{% set a, b = 1, 2 %}{% set x = 1 %}{% for i in [1] %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}{{ a }}{{ b }}
"""
CONSTRUCTS = CONSTRUCTS.replace("CTRL", "\u0001") + r"""{% macro m(a, b='B', c=none) %}[{{ a }}{{ b }}{{ c }}{{ loop is defined }}]{% endmacro %}{% for q in 'xy' %}{{ m(q, c=1) }}{{ m(b=q) }}{% endfor %}
{%- set block %}  kept {{ 1 }}
{% endset %}<{{ block }}>{# a comment -#}

   {%+ if true %} plus{% endif +%}
 x{{- ' y' -}}  
z
  {% if true %}  
  {% endif %}end {{ 'adj' 'acent' }} {{ [3, 1] | list | first }} {{ "qé\t'\"\\x" }} {{ 'a' is in ['a'] }} {{ 1 is eq 1 }} {{ {'a': 1}.get('b', 2) }}{{ {'a': 1}.get('b') }}
{{ [{'n': {'v': 1}}, {'n': {'v': 2}}] | map(attribute='n.v') | join('+') }} {{ [1, none, '', 2] | select | join }} {{ [{'a': 1}, {'b': 2}] | rejectattr('a') | list | length }} {{ ('a' ~ 'b') | safe }}
{% set d = {'title': 'T', 'items': 1} %}{{ d.title }}{{ d['items'] }}{{ d.other is defined }}{{ messages | length }}{{ messages[0].role }}{{ messages[-1]['content'] }}
"""

BOS = {"bos_token": "<s>", "eos_token": "</s>"}
TEMPLATES = {
    "chatml": (CHATML, {}), "llama2": (LLAMA2, BOS), "llama3": (LLAMA3, {"bos_token": "<|begin_of_text|>"}),
    "mistral": (MISTRAL, BOS), "qwen3": (QWEN3, {"eos_token": "<|im_end|>"}), "gemma": (GEMMA, {"bos_token": "<bos>"}),
    "phi3": (PHI3, {"eos_token": "<|endoftext|>"}), "deepseek": (DEEPSEEK, {"bos_token": "<\uff5cbegin\uff5c>"}),
    "zephyr": (ZEPHYR, BOS), "smollm3": (SMOLLM3, {}), "chatml_training": (CHATML_TRAINING, {}),
    "granite": (GRANITE, {}), "constructs": (CONSTRUCTS, BOS),
    "windows_lines": (ZEPHYR.replace("\n", "\r\n"), BOS),
}


def turns(*contents, system=None):
    messages = [] if system is None else [{"role": "system", "content": system}]
    return messages + [{"role": ("user", "assistant")[i % 2], "content": c} for i, c in enumerate(contents)]


CONVERSATIONS = [
    (turns("Hi"), {}), (turns("Hi", "Hello."), {}), (turns("Hi", "Hello.", "Bye", "Bye."), {}),
    (turns("2 + 2?", "4", system="Be brief."), {}), (turns(" \n a \u3000", "\u00a0b\n", "", "", system=" s \n"), {}),
    (turns("Gr\u00fc\u00dfe \u65e5\u672c \U0001f642 e\u0301", "{{ x }} {% if %} <|im_end|>\\n\"'\t\r\n"), {}),
    (turns("q", "<think>\nhm\n</think>\n\nfirst", "r", "<think>a</think>b", system=""), {}),
    (turns("q", "a", "r"), {"enable_thinking": False}), (turns("q"), {"date_string": "1 Jan 2025", "number": 3}),
    (turns("a", "b") + turns("c", "d", "e", "f", "g", "h"), {}),
    ([{"role": "assistant", "content": "first"}, {"role": "user", "content": "x"}], {}),
    ([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], {}),
    ([{"role": "system", "content": "only"}], {}), ([{"role": "tool", "content": "t"}, *turns("u")], {}),
]


def case(template, tokens, messages, variables, add_generation_prompt):
    result = {"messages": messages, "add_generation_prompt": add_generation_prompt, "variables": variables}
    has_generation = re.search(r"\{%-?\s*generation", template) is not None
    try:
        texts, indices = render_jinja_template(
            [messages], chat_template=template, add_generation_prompt=add_generation_prompt,
            return_assistant_tokens_mask=has_generation, **tokens, **variables)
    except Exception as error:  # of the template, or of Python for an operation in it
        return result | {"error": f"{type(error).__name__}: {error}"}
    result["text"] = texts[0]
    if has_generation:
        result["generated"] = [[len(texts[0][:at].encode()) for at in span] for span in indices[0]]
    return result


def main():
    templates = TEMPLATES
    if len(sys.argv) > 2:
        templates = {os.path.basename(file): (open(file).read(), BOS) for file in glob.glob(f"{sys.argv[2]}/*.jinja")}
    out = [{"name": name, "template": template, "tokens": tokens,
            "cases": [case(template, tokens, messages, variables, prompt)
                      for messages, variables in CONVERSATIONS for prompt in (False, True)]}
           for name, (template, tokens) in templates.items()]
    with open(sys.argv[1], "w") as file:
        json.dump(out, file, ensure_ascii=False)
        file.write("\n")


main()
