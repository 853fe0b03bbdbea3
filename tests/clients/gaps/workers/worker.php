<?php

// As worker.py, in PHP.

declare(strict_types=1);

use JobQueue\Client\Client;
use JobQueue\Client\Job;
use JobQueue\Client\Worker;

require dirname(__DIR__, 4) . '/clients/php/autoload.php';

[, $urls, $topic] = $argv;
$worker = new Worker(new Client(urls: json_decode($urls), ca_file: $argv[3] ?? null));
$worker->job($topic, static function (Job $job): void {
    $line = ['id' => $job->id, 'attempt' => $job->attempt, 'due' => $job->due, 'lease' => $job->lease, 'at' => hrtime(true) / 1e9];
    fwrite(STDOUT, json_encode($line) . "\n");
});
$worker->run();
