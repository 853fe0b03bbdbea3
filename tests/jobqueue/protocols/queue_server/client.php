<?php
// What a client of queue_server does, on a bare socket: one write, one read, and an answer counts only if its seq is
// that of the request. Arguments: tcp or udp, host:port, number of jobs. Prints what it has seen as JSON.

declare(strict_types=1);

[, $transport, $address, $jobs] = $argv;
$socket = stream_socket_client("$transport://$address", $error, $message, 5);
if ($socket === false) {
    fwrite(STDERR, "$message\n");
    exit(1);
}
stream_set_timeout($socket, 5);

function ask(array $request): array
{
    global $socket;
    $request['seq'] = mt_rand();
    fwrite($socket, json_encode($request));
    $answer = json_decode((string) fread($socket, 65536), true);
    if (!is_array($answer) || ($answer['seq'] ?? null) !== $request['seq']) {
        fwrite(STDERR, 'no answer of its own: ' . json_encode($answer) . "\n");
        exit(1);
    }
    return $answer;
}

$queue = 'task#test:order:event';
$produced = $consumed = [];
for ($i = 0; $i < $jobs; $i++) {
    $now = time();
    $answer = ask(['action' => 1, 'queue' => $queue, 'data' => "test/订单_$i", 'delay' => $now, 'ttl' => $now + 10, 'retry' => 2]);
    $answer['code'] === 0 and $produced[$answer['msg_id']] = "test/订单_$i";
}
while (isset(($answer = ask(['action' => 2, 'queue' => $queue]))['msg_id'])) {
    $consumed[$answer['msg_id']] = $answer['data'];
    ask(['action' => 3, 'queue' => $queue, 'msg_id' => $answer['msg_id']]);
}
$leader = ask(['action' => 8]);
echo json_encode([
    'produced' => count($produced),
    'same' => $produced === $consumed,
    'left' => ask(['action' => 4, 'queue' => $queue])['size'],
    'queues' => array_column(ask(['action' => 7, 'pattern' => 'order'])['queue_list'], 'name'),
    'leader' => "{$leader['leader_host']}:{$leader['leader_port']}",
    'refused' => ask(['action' => 1, 'queue' => $queue, 'data' => 5])['reason'],
]);
