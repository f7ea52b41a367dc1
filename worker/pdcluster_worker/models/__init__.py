"""Models as files: where they come from, their tokenizer, their chat template.

A model is a *folder*: ``config.json``, ``*.safetensors``, ``tokenizer.json``,
``tokenizer_config.json``. `source.prepare` turns every kind of source into one; everything else
reads folders. Nothing here imports torch or transformers, so the frontend starts fast.
"""
