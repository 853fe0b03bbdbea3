<?php

// Closes orders that are not paid in time.
//
//     php examples/close_unpaid_orders.php [seconds]
//
// Needs a service: `make run`, or the one at the environment variable JOBQUEUE_URL.

declare(strict_types=1);

use JobQueue\Client\Client;
use JobQueue\Client\Exception\NotFoundException;
use JobQueue\Client\Exception\WrongStateException;
use JobQueue\Client\Job;
use JobQueue\Client\Worker;

$package = dirname(__DIR__);
require is_file("$package/vendor/autoload.php") ? "$package/vendor/autoload.php" : "$package/autoload.php";

$url = getenv('JOBQUEUE_URL') ?: 'http://localhost:8000';
$seconds = (float) ($argv[1] ?? 2); // in real life 1800: 30 minutes
$client = new Client($url);

// The topic is the example's own. In real life the job's id is `order-close:1001`, made of the topic and the order: an
// order placed twice, by a repeated request, still has one job. The random word lets this example run again at once.
$run = bin2hex(random_bytes(4));
$id = static fn (int $order): string => "example-close-order:$order:$run";

// Three orders are placed. Each gets a job that is due when its time to pay is over. Repeating an add finds the job and
// changes nothing, so it is safe to repeat if its answer is lost; the client itself does so.
foreach ([1001, 1002, 1003] as $order) {
    $client->add('example-close-order', ['order' => $order], delay: $seconds, id: $id($order));
}

// One is paid: its job is cancelled. A payment may come too late, when the job is done, or no longer remembered.
try {
    $client->delete($id(1002));
    echo "order 1002 paid: its time-out is cancelled\n";
} catch (WrongStateException | NotFoundException $late) {
    echo "order 1002 paid too late: {$late->getMessage()}\n";
}

// A worker closes the others. It waits for the service to deliver the jobs that are due, without polling in a loop, and
// many workers may share the topic. In real life it is a program of its own, and runs forever. Its log goes to standard
// error.
$worker = new Worker($client);
$closed = 0;

$worker->job('example-close-order', static function (Job $job) use ($worker, $run, &$closed): void {
    // Here the shop would check that the order is still unpaid, and close it. A handler that returns finishes its job;
    // after one that throws, the job is delivered again, after 1 s at first, and later after longer pauses; after one
    // whose process dies, at the end of its TTR. Closing an order twice must do no harm.
    if (!str_ends_with($job->id, $run)) {
        return; // of an earlier run that was interrupted
    }
    echo "order {$job->body['order']} closed: not paid in time\n";
    if (++$closed === 2) {
        $worker->stop();
    }
});

exit($worker->run() ? 0 : 1);
