"""The tests of the machine."""

import pytest

pytest.register_assert_rewrite("tests.buckets.books", "tests.buckets.model")
