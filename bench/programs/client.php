<?php

// The PHP client, as bare.py says.

declare(strict_types=1);

use JobQueue\Client\Client;
use JobQueue\Client\Job;
use JobQueue\Client\Worker;

require dirname(__DIR__, 2) . '/clients/php/autoload.php';

const BATCH = 100;

[, $url, $kind, $count, $topic] = $argv;
$count = (int) $count;

$fields = static fn (int $number): array => [
    'topic' => $topic,
    'id' => $topic . ':' . str_pad((string) $number, 19 - strlen($topic), '0', STR_PAD_LEFT),
    'delay' => 3600,
    'body' => str_repeat('x', 98),
];

if ($kind === 'work') {
    $done = 0;
    $worker = new Worker($url, on_event: static function (string $event) use (&$done, &$worker, $count): void {
        $done += $event === 'job.finished' ? 1 : 0;
        if ($done === $count) {
            $worker->stop();
        }
    });
    $worker->job($topic, static function (Job $job): void {
    });
    $begun = microtime(true);
    $worker->run();
} else {
    $client = new Client($url);
    $client->stats(); // the connection stands
    $begun = microtime(true);
    if ($kind === 'batch') {
        for ($start = 0; $start < $count; $start += BATCH) {
            $client->batch(array_map(
                static fn (int $number): array => ['command' => 'add'] + $fields($number),
                range($start, $start + BATCH - 1),
            ));
        }
    } else {
        for ($number = 0; $number < $count; $number++) {
            $client->add(...$fields($number));
        }
    }
}
echo json_encode(['seconds' => microtime(true) - $begun]), "\n";
