<?php

// Closes the orders that are not paid in time.
//
//     php examples/close_unpaid_orders.php [seconds]
//
// Needs a service: `make run`, or the environment's JOBQUEUE_URL.

declare(strict_types=1);

use JobQueue\Client\Client;
use JobQueue\Client\Job;
use JobQueue\Client\Worker;

$package = dirname(__DIR__);
require is_file("$package/vendor/autoload.php") ? "$package/vendor/autoload.php" : "$package/autoload.php";

$url = getenv('JOBQUEUE_URL') ?: 'http://localhost:8000';
$seconds = (float) ($argv[1] ?? 2); // in real life 1800: 30 minutes
$client = new Client($url);

// In real life the job's id is `order-close:1001`, made of the topic and the order: then an order that is placed twice,
// by a repeated request, still has one job. The random word lets this example run again at once.
$run = bin2hex(random_bytes(4));
$id = static fn (int $order): string => "order-close:$order:$run";

// Three orders are placed. Each gets a job that is due when its time to pay is over. The same add again would find the
// job and change nothing, so whoever is not sure whether it arrived simply repeats it; the client itself does so too.
foreach ([1001, 1002, 1003] as $order) {
    $client->add('order-close', ['order' => $order], id: $id($order), delay: $seconds);
}

// One is paid before its time is over: its job is cancelled.
$client->delete($id(1002));
echo "order 1002 paid: its time-out is cancelled\n";

// A worker closes the others. It waits for the service to hand it the jobs that are due: nothing is polled in a loop,
// and many workers may share the topic. In real life it is a program of its own, and runs for ever.
$worker = new Worker($client, log: static fn (string $line) => null);
$closed = 0;

$worker->on('order-close', static function (Job $job) use ($worker, &$closed): void {
    // Here the shop would look whether the order is still unpaid, and close it. A handler that returns has finished its
    // job; one that throws, or whose process dies, sees it again. So it must bear to run twice for one order.
    echo "order {$job->body['order']} closed: not paid in time\n";
    if (++$closed === 2) {
        $worker->stop();
    }
});

exit($worker->run() ? 0 : 1);
