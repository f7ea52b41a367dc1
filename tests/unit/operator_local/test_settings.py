"""What people may set, and what is refused."""

import pytest

from pdcluster_operator.errors import SettingError
from pdcluster_operator.settings import ENV_LOCAL_RANGE, load_settings


@pytest.mark.parametrize(
    "given", ["banana", "10.1.0.0/16", "127.0.0.1/8", "127.1.0.0/30", "0.0.0.0/0", "::1/128"]
)
def test_a_range_that_cannot_work_is_refused_by_name(given: str) -> None:
    with pytest.raises(SettingError, match=ENV_LOCAL_RANGE):
        load_settings({ENV_LOCAL_RANGE: given})


def test_an_empty_range_is_the_default() -> None:
    assert load_settings({ENV_LOCAL_RANGE: ""}).local_range == load_settings({}).local_range
