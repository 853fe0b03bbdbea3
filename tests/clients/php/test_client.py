"""The arguments and errors that only the PHP client has."""

from __future__ import annotations

import pytest

from tests.clients.php.program import told
from tests.kit.service import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_delay_that_is_none_is_a_type_error_without_strict_types_too(queue: Client) -> None:
    code = """
        foreach (['1800', 'order-close:1001', true, [1800], new DateTime()] as $delay) {
            try {
                (new Client($url))->add('order-close', 1, $delay);
            } catch (TypeError $error) {
                $tell($error->getMessage());
            }
        }
    """
    said = await told(code, queue.url)
    assert ["delay must be a number of seconds or a DateInterval" in message for message in said] == [True] * 5


async def test_a_delay_may_be_an_interval_everywhere(queue: Client) -> None:
    code = """
        $client = new Client($url);
        $minute = new DateInterval('PT1M');
        $client->batch([['command' => 'add', 'topic' => 't', 'body' => 1, 'id' => 'batch', 'delay' => $minute]]);
        $client->add('t', 1, 5, id: 'update');
        $client->update('update', delay: $minute);
        $client->add('r', 1, id: 'release');
        $client->release($client->pop('r'), delay: $minute);
        $tell((new Retry(after: $minute))->after);
        foreach (['batch', 'update', 'release'] as $id) {
            $tell([round($client->get($id)['until'] - $client->get('batch')['created'])]);
        }
    """
    assert await told(code, queue.url) == [[60], [60], [60]]


async def test_an_error_has_an_int_as_its_code_and_that_of_the_service_beside_it(queue: Client) -> None:
    code = """
        foreach ([$url, 'http://127.0.0.1:1'] as $each) {
            try {
                (new Client($each, retry_for_s: 0))->delete('ord-7');
            } catch (JobQueue\\Client\\Exception\\JobQueueException $error) {
                $tell([$error->error_code ?? null, $error->getCode()]);
            }
        }
    """
    assert await told(code, queue.url) == [["NOT_FOUND", 0], [None, 0]]
