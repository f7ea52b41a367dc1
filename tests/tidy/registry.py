"""All tidy rules by name. A new rule is one function and one line here."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tests.tidy import rules_calls, rules_imports, rules_size, rules_text
from tests.tidy.source import Offence, Source

Rule = Callable[[Sequence[Source]], Iterable[Offence]]

RULES: Mapping[str, Rule] = {
    "long-file": rules_size.long_file,
    "long-function": rules_size.long_function,
    "many-parameters": rules_size.many_parameters,
    "many-positional": rules_size.many_positional,
    "median-file": rules_size.median_file,
    "median-function": rules_size.median_function,
    "has-attribute": rules_calls.has_attribute,
    "wide-except": rules_calls.wide_except,
    "reads-clock": rules_calls.reads_clock,
    "reads-environment": rules_calls.reads_environment,
    "unsafe-code": rules_calls.unsafe_code,
    "imports-nixl": rules_imports.imports_nixl,
    "imports-kopf": rules_imports.imports_kopf,
    "foreign-to-api": rules_imports.foreign_to_api,
    "dead-module": rules_imports.dead_module,
    "stray-init": rules_imports.stray_init,
    "missing-init": rules_imports.missing_init,
    "no-docstring": rules_text.no_docstring,
    "unassigned-work": rules_text.unassigned_work,
    "machine-path": rules_text.machine_path,
    "index-host": rules_text.index_host,
    "large-file": rules_text.large_file,
    "missing-text": rules_text.missing_text,
}
