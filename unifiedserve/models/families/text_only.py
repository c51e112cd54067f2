"""Language models without media: Llama, Mistral, Qwen2, Qwen3 and others whose layers are as theirs."""

from unifiedserve.models.base import LanguageAdapter, Processor


class TextProcessor(Processor):
    pass


class TextAdapter(LanguageAdapter):
    pass
