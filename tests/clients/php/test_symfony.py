"""The transport for Symfony Messenger: its messages, delayed, retried and lost, on the real bus and worker."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.php.program import need, told
from tests.kit.service import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")

APP = """
set_error_handler(fn (int $level) => ($level & (E_DEPRECATED | E_USER_DEPRECATED)) !== 0); // Symfony 5.4 on PHP 8.2
foreach (['Component/Messenger', 'Component/EventDispatcher'] as $part) {
    require "Symfony/$part/autoload.php";
}
require 'Psr/Container/autoload.php';

use JobQueue\\Client\\Symfony\\TransportFactory;
use Symfony\\Component\\EventDispatcher\\EventDispatcher;
use Symfony\\Component\\Messenger\\Envelope;
use Symfony\\Component\\Messenger\\EventListener\\SendFailedMessageForRetryListener;
use Symfony\\Component\\Messenger\\Handler\\HandlersLocator;
use Symfony\\Component\\Messenger\\MessageBus;
use Symfony\\Component\\Messenger\\Middleware\\HandleMessageMiddleware;
use Symfony\\Component\\Messenger\\Middleware\\SendMessageMiddleware;
use Symfony\\Component\\Messenger\\Retry\\MultiplierRetryStrategy;
use Symfony\\Component\\Messenger\\Stamp\\DelayStamp;
use Symfony\\Component\\Messenger\\Stamp\\TransportMessageIdStamp;
use Symfony\\Component\\Messenger\\Transport\\Sender\\SendersLocator;
use Symfony\\Component\\Messenger\\Transport\\Serialization\\PhpSerializer;

final class CloseOrder
{
    public function __construct(public int $order)
    {
    }
}

final class Services implements Psr\\Container\\ContainerInterface
{
    public function __construct(private array $services)
    {
    }

    public function get(string $id)
    {
        return $this->services[$id];
    }

    public function has(string $id): bool
    {
        return isset($this->services[$id]);
    }
}

$factory = new TransportFactory();
$dsn = str_replace('http://', 'jobqueue://', $url) . '/orders?ttr=30';
$transport = $factory->createTransport($dsn, ['wait' => 0], new PhpSerializer());
$services = new Services(['orders' => $transport]);
$handle = fn (CloseOrder $message) => $tell(['closed', $message->order]);
$bus = new MessageBus([
    new SendMessageMiddleware(new SendersLocator([CloseOrder::class => ['orders']], $services)),
    new HandleMessageMiddleware(new HandlersLocator([CloseOrder::class => [fn ($one) => $GLOBALS['handle']($one)]])),
]);
$client = new Client($url);
$advance = fn (float $seconds) => $client->batch([['command' => 'clock', 'advance' => $seconds]]);
$work = function () use ($transport, $services, $bus): void {
    $events = new EventDispatcher();
    $strategies = new Services(['orders' => new MultiplierRetryStrategy(2, 60_000, 2, 0)]);
    $events->addSubscriber(new SendFailedMessageForRetryListener($services, $strategies));
    $worker = new Symfony\\Component\\Messenger\\Worker(['orders' => $transport], $bus, $events);
    $idle = Symfony\\Component\\Messenger\\Event\\WorkerRunningEvent::class;
    $events->addListener($idle, fn ($event) => $event->isWorkerIdle() && $worker->stop());
    $worker->run(['sleep' => 0]);
};
"""


async def run(queue: Client, code: str) -> list[Any]:
    need("Symfony/Component/Messenger/autoload.php", "Symfony/Component/EventDispatcher/autoload.php")
    return await told(APP + code, queue.url)


async def test_a_delayed_message_is_handled_when_it_is_due_and_then_gone(queue: Client) -> None:
    said = await run(
        queue,
        """
        $envelope = $bus->dispatch(new CloseOrder(1001), [new DelayStamp(1_800_000)]);
        $tell([$client->get($envelope->last(TransportMessageIdStamp::class)->getId())['state']]);
        $bus->dispatch(new CloseOrder(1002));
        $tell([$transport->getMessageCount()]);
        $work();
        $advance(1799);
        $work();
        $advance(1);
        $work();
        $tell([$transport->getMessageCount()]);
        """,
    )
    assert said == [["delayed"], [2], ["closed", 1002], ["closed", 1001], [0]]


async def test_a_message_that_fails_is_sent_again_with_its_delay_and_its_tries_are_messengers(queue: Client) -> None:
    said = await run(
        queue,
        """
        $handle = fn () => [$tell(['try']), throw new DomainException('no')];
        $bus->dispatch(new CloseOrder(1001));
        foreach ([0, 59, 1, 119, 1, 3600] as $seconds) { // 60 s, then twice as much, then no more
            $advance($seconds);
            $work();
            $tell([$seconds]);
        }
        $tell([$transport->getMessageCount()]);
        """,
    )
    assert said == [["try"], [0], [59], ["try"], [1], [119], ["try"], [1], [3600], [0]]


async def test_a_message_whose_worker_died_is_delivered_again_and_a_kept_one_is_not(queue: Client) -> None:
    said = await run(
        queue,
        """
        $bus->dispatch(new CloseOrder(1001));
        [$kept] = $transport->get();
        $advance(29);
        $transport->keepalive($kept, 5);
        $advance(29); // 58 s after the get: the TTR of 30 s has begun again
        $work();
        $advance(2);
        $work();
        $transport->ack($kept); // the late end of the first worker does no harm
        """,
    )
    assert said == [["closed", 1001]]


async def test_a_message_that_cannot_be_decoded_becomes_a_dead_letter_with_the_reason(queue: Client) -> None:
    said = await run(
        queue,
        """
        $client->add('orders', ['body' => 'rubbish'], id: 'orders:1');
        try {
            $transport->get();
        } catch (Symfony\\Component\\Messenger\\Exception\\MessageDecodingFailedException) {
            $tell(['refused', $client->get('orders:1')['state']]);
        }
        """,
    )
    assert said == [["refused", "dead"]]
    assert "cannot be decoded" in (await queue.ask("get", id="orders:1"))["reason"]


async def test_a_service_that_is_away_is_an_error_of_messenger(queue: Client) -> None:
    said = await run(
        queue,
        """
        $away = $factory->createTransport('jobqueue://127.0.0.1:1/orders?retry_for_s=0', [], new PhpSerializer());
        try {
            $away->send(new Envelope(new CloseOrder(1)));
        } catch (Symfony\\Component\\Messenger\\Exception\\TransportException $error) {
            $tell([str_contains($error->getMessage(), 'Failed to connect')]);
        }
        """,
    )
    assert said == [[True]]


async def test_a_dsn_names_hosts_a_prefix_and_a_topic_and_bad_ones_are_refused(queue: Client) -> None:
    said = await run(
        queue,
        """
        $tell([$factory->supports('jobqueue://a/b', []), $factory->supports('redis://a/b', [])]);
        foreach (['jobqueue://a:8000,b:8000/jobs/orders', 'jobqueue://a', 'jobqueue://a/orders?tls=1'] as $dsn) {
            $dsn = new JobQueue\\Client\\Symfony\\Dsn($dsn, ['transport_name' => 'x']);
            $tell([$dsn->urls, $dsn->topic]);
        }
        foreach (['jobqueue:///orders', 'jobqueue://a/orders?tries=3'] as $dsn) {
            try {
                $factory->createTransport($dsn, [], new PhpSerializer());
            } catch (InvalidArgumentException $error) {
                $tell([$error->getMessage()]);
            }
        }
        """,
    )
    assert said[:4] == [
        [True, False],
        [["http://a:8000/jobs", "http://b:8000/jobs"], "orders"],
        [["http://a"], "messages"],
        [["https://a"], "orders"],
    ]
    assert "jobqueue://localhost:8000/topic" in said[4][0] and "unknown option tries" in said[5][0]


async def test_messenger_7_sees_that_messages_can_be_kept_alive(queue: Client) -> None:
    """Debian has 5.4, without that interface: declared here as 7.2 has it."""
    said = await run(
        queue,
        """
        eval('namespace Symfony\\Component\\Messenger\\Transport\\Receiver;
            use Symfony\\Component\\Messenger\\Envelope;
            interface KeepaliveReceiverInterface extends ReceiverInterface
            {
                public function keepalive(Envelope $envelope, ?int $seconds = null): void;
            }');
        $kept = $factory->createTransport($dsn, [], new PhpSerializer());
        $tell([$kept instanceof Symfony\\Component\\Messenger\\Transport\\Receiver\\KeepaliveReceiverInterface]);
        """,
    )
    assert said == [[True]]
