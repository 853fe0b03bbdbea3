<?php

// Closes orders that are not paid in time.
//
//     php examples/close_unpaid_orders.php [seconds]
//
// Needs a service: `make run`, or the one at the environment variable JOBQUEUE_URL.

declare(strict_types=1);

use JobQueue\Client\Client;
use JobQueue\Client\Job;
use JobQueue\Client\Worker;

$package = dirname(__DIR__);
require is_file("$package/vendor/autoload.php") ? "$package/vendor/autoload.php" : "$package/autoload.php";

$url = getenv('JOBQUEUE_URL') ?: 'http://localhost:8000';
$seconds = (float) ($argv[1] ?? 2); // in real life 1800: 30 minutes
$client = new Client($url);

// In real life the job's id is `order-close:1001`, made of the topic and the order: an order placed twice, by a repeated
// request, still has one job. The random word lets this example run again at once.
$run = bin2hex(random_bytes(4));
$id = static fn (int $order): string => "order-close:$order:$run";

// Three orders are placed. Each gets a job that is due when its time to pay is over. Repeating an add finds the job and
// changes nothing, so it is safe to repeat if its answer is lost; the client itself does so.
foreach ([1001, 1002, 1003] as $order) {
    $client->add('order-close', ['order' => $order], id: $id($order), delay: $seconds);
}

// One is paid in time: its job is cancelled.
$client->delete($id(1002));
echo "order 1002 paid: its time-out is cancelled\n";

// A worker closes the others. It waits for the service to deliver the jobs that are due, without polling in a loop, and
// many workers may share the topic. In real life it is a program of its own, and runs forever.
$worker = new Worker($client, log: static fn (string $line) => null);
$closed = 0;

$worker->on('order-close', static function (Job $job) use ($worker, &$closed): void {
    // Here the shop would check that the order is still unpaid, and close it. A handler that returns finishes its job;
    // after one that throws, or whose process dies, the job is delivered again. Closing an order twice must do no harm.
    echo "order {$job->body['order']} closed: not paid in time\n";
    if (++$closed === 2) {
        $worker->stop();
    }
});

exit($worker->run() ? 0 : 1);
