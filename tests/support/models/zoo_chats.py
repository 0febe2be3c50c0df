"""Chat templates as open models have them, in short: order, limits, control tokens."""


def _turns(before: str, between: str, after: str, prompt: str) -> str:
    """A template of equal turns for every kind of message."""
    return (
        "{% for m in messages %}" + before + "{{ m['role'] }}" + between + "{{ m['content'] }}" + after
        + "{% endfor %}{% if add_generation_prompt %}" + prompt + "{% endif %}"
    )  # fmt: skip


_TAKE_TURNS = (
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
)
_TOOLS = (
    "{% if tools %}{{ '\\n\\n# Tools\\n\\n<tools>' }}{% for t in tools %}{{ '\\n' + (t | tojson) }}"
    "{% endfor %}{{ '\\n</tools>' }}{% endif %}"
)
# name -> (template, begin of a text, end of a turn, further control tokens)
CHATS: dict[str, tuple[str, str | None, str, tuple[str, ...]]] = {
    "llama2": (
        "{% if messages[0]['role'] == 'system' %}{% set talk = messages[1:] %}"
        "{% set system = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}"
        "{% else %}{% set talk = messages %}{% set system = '' %}{% endif %}"
        "{% for m in talk %}" + _TAKE_TURNS + "{% if m['role'] == 'user' %}"
        "{{ bos_token + '[INST] ' + (system if loop.first else '') + m['content'].strip() + ' [/INST]' }}"
        "{% else %}{{ ' ' + m['content'].strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
        "<s>", "</s>", (),
    ),
    "llama3": (
        "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
        "{% if loop.first and m['role'] == 'system' %}Today Date: {{ strftime_now('%d %b %Y') }}\n\n"
        "{% endif %}"
        "{{ m['content'] | trim }}{% if loop.first %}" + _TOOLS + "{% endif %}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        "<|begin_of_text|>", "<|eot_id|>", ("<|start_header_id|>", "<|end_header_id|>"),
    ),
    "chatml": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] }}"
        "{% if loop.first and m['role'] == 'system' %}" + _TOOLS + "{% endif %}"
        "{{ '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        None, "<|im_end|>", ("<|im_start|>", "<|endoftext|>"),
    ),
    "mistral": (
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}"
        "{{ '[INST] ' + m['content'] + '[/INST]' }}"
        "{% elif m['role'] == 'tool' %}{% if m['tool_call_id'] | length != 9 %}"
        "{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}"
        "{{ '[TOOL_RESULTS] ' + (m['content'] | tojson) + '[/TOOL_RESULTS]' }}"
        "{% elif m['role'] == 'assistant' %}{{ ' ' + m['content'] + eos_token }}"
        "{% else %}{{ raise_exception('Only user and assistant roles are supported') }}{% endif %}"
        "{% endfor %}",
        "<s>", "</s>", ("[INST]", "[/INST]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    ),
    "phi3": (
        "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}",
        None, "<|endoftext|>", ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>"),
    ),
    "gemma": (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
        "{{ raise_exception('System role not supported') }}{% endif %}{% for m in messages %}" + _TAKE_TURNS
        + "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\\n'"
        " + m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
        "<bos>", "<eos>", ("<start_of_turn>", "<end_of_turn>"),
    ),
    "olmo": (
        "{{ bos_token }}" + _turns("{{ '<|' }}", "{{ '|>\\n' }}",
                                   "{{ '\\n' if m['role'] != 'assistant' else eos_token + '\\n' }}",
                                   "{{ '<|assistant|>\\n' }}"),
        "<|endoftext|>", "<|endoftext|>", (),
    ),
    "harmony": (
        "{% for m in messages %}{{ '<|start|>' + ('developer' if m['role'] == 'system' else m['role']) }}"
        "{{ '<|channel|>final' if m['role'] == 'assistant' else '' }}{{ '<|message|>' + m['content'] }}"
        "{% if loop.first and m['role'] == 'system' %}" + _TOOLS + "{% endif %}"
        "{{ '<|return|>' if m['role'] == 'assistant' and loop.last else '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}",
        None, "<|return|>", ("<|start|>", "<|end|>", "<|message|>", "<|channel|>"),
    ),
    "granite": (
        _turns("<|start_of_role|>", "<|end_of_role|>", "{{ '<|end_of_text|>\\n' }}",
               "<|start_of_role|>assistant<|end_of_role|>"),
        None, "<|end_of_text|>", ("<|start_of_role|>", "<|end_of_role|>"),
    ),
    "cohere": (
        "{{ bos_token }}{% for m in messages %}{{ '<|START_OF_TURN_TOKEN|>' + {'user': '<|USER_TOKEN|>',"
        " 'assistant': '<|CHATBOT_TOKEN|>', 'system': '<|SYSTEM_TOKEN|>',"
        " 'tool': '<|SYSTEM_TOKEN|>'}[m['role']]"
        " + m['content'].strip() + '<|END_OF_TURN_TOKEN|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}",
        "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>",
        ("<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|SYSTEM_TOKEN|>"),
    ),
    "falcon": (
        "{% for m in messages %}{% if not loop.first %}{{ '\\n' }}{% endif %}{{ m['role'] | capitalize + ': '"
        " + m['content'] }}{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '\\nAssistant:' }}{% endif %}",
        None, "<|endoftext|>", (),
    ),
    "none": ("", None, "</s>", ()),
}  # fmt: skip
