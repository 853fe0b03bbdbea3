"""The tests of the engine."""

import pytest

pytest.register_assert_rewrite("tests.buckets.books", "tests.buckets.model")
