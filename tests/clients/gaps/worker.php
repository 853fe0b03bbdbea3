<?php

// The worker of the PHP client for the test of gaps:
//
//     php worker.php '["http://127.0.0.1:8001", "http://127.0.0.1:8002"]' TOPIC
//
// For each job that it receives, it prints the time, in seconds of the monotonic clock (CLOCK_MONOTONIC), and the job's id.
// Its log goes to standard error. SIGTERM stops it.

declare(strict_types=1);

use JobQueue\Client\Client;
use JobQueue\Client\Job;
use JobQueue\Client\Worker;

require dirname(__DIR__, 3) . '/clients/php/autoload.php';

[, $urls, $topic] = $argv;
$worker = new Worker(new Client(urls: json_decode($urls, flags: JSON_THROW_ON_ERROR)));
$worker->job($topic, static function (Job $job): void {
    fwrite(STDOUT, sprintf("%.6f %s\n", hrtime(true) / 1e9, $job->id));
});
exit($worker->run() ? 0 : 1);
