<?php

// Asks a payment provider at growing intervals whether a payment has arrived.
//
//     php examples/poll_payment.php
//
// Needs a service: `make run`, or the one at the environment variable JOBQUEUE_URL.

declare(strict_types=1);

use JobQueue\Client\Bury;
use JobQueue\Client\Client;
use JobQueue\Client\Job;
use JobQueue\Client\Retry;
use JobQueue\Client\Worker;

$package = dirname(__DIR__);
require is_file("$package/vendor/autoload.php") ? "$package/vendor/autoload.php" : "$package/autoload.php";

$client = new Client(getenv('JOBQUEUE_URL') ?: 'http://localhost:8000');
$run = bin2hex(random_bytes(4)); // lets this example run again at once; in real life the id is `poll-payment:7`
$id = static fn (int $payment): string => "example-poll-payment:$payment:$run";

// Two payments are started. `backoff` lists the pauses between asks (without it they would be the service's: 1 s, 5 s,
// 15 s, 1 min, …), and `tries` limits how often to ask.
// In real life: backoff: [15, 15, 30, 180, 600, 1200, 1800, 3600], tries: 9.
foreach ([7, 8] as $payment) {
    $body = ['payment' => $payment];
    $client->add('example-poll-payment', $body, id: $id($payment), backoff: [0.5, 0.5, 1, 1], tries: 5);
}

// A mock provider: payment 7 has arrived when it is asked for the third time, payment 8 never arrives.
$isPaid = static fn (int $payment, int $asks): bool => $payment === 7 && $asks >= 3;

$worker = new Worker($client);
$open = 2;

$worker->job('example-poll-payment', static function (Job $job) use ($worker, $isPaid, $run, &$open): void {
    if (!str_ends_with($job->id, $run)) {
        return; // of an earlier run that was interrupted
    }
    $payment = $job->body['payment'];
    $paid = $isPaid($payment, $job->attempt);
    if (!$paid && !$job->last_try) {
        throw new Retry(); // asks again, after the next pause
    }
    if (--$open === 0) {
        $worker->stop(); // running jobs still end, including this one
    }
    if ($paid) {
        echo "payment $payment paid after {$job->attempt} asks\n";
        return;
    }
    // This is the last delivery. The job is kept as a dead letter, with the reason, for people to inspect.
    echo "payment $payment given up after {$job->attempt} asks\n";
    throw new Bury("not paid after {$job->attempt} asks");
});

$clean = $worker->run();
$client->delete($id(8)); // the dead letter: `jobqueue peek example-poll-payment --state dead` would show it
exit($clean ? 0 : 1);
