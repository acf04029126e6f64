import pytest

import trimol


def test_names_and_classes():
    assert {"static", "mgda", "modo"} <= set(trimol.methods.names())
    assert trimol.methods.get("modo") is trimol.MoDo


def test_unknown_name():
    with pytest.raises(ValueError, match=r"name must be one of .*modo.*, found 'modoo'"):
        trimol.methods.get("modoo")
