<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

use Closure;
use CurlHandle;
use CurlMultiHandle;
use JobQueue\Client\Clock;
use JobQueue\Client\Exception\UnreachableException;

/**
 * One keep-alive HTTP connection to the service. A clone has a connection of its own.
 *
 * It uses curl's multi interface even for single requests: PHP runs signal handlers between its calls, and a request
 * can be aborted while in flight.
 *
 * @internal
 */
final class Transport
{
    /** Seconds between checks whether to give up; a signal just before a wait is noticed only after the wait. */
    private const WAIT_S = 0.2;

    /** Seconds after which an idle connection is not reused: a middlebox may have dropped it. */
    private const IDLE_S = 10.0;

    /** The longest time-out that curl accepts: 24 days. */
    private const MOST_MS = 2_147_483_647;

    /** curl's error for a reused connection that broke after the body was sent; PHP has no constant for it. */
    private const NOT_REWOUND = 65;

    private const UNAUTHORIZED = 401;

    /** curl's errors for a connection that ended without an answer, or with one that is not HTTP. */
    private const CLOSED = [CURLE_GOT_NOTHING, CURLE_RECV_ERROR, CURLE_SEND_ERROR, CURLE_UNSUPPORTED_PROTOCOL];

    private ?CurlMultiHandle $multi = null;
    private CurlHandle $easy;
    private int $pid = 0;
    private float $used = 0.0;
    /** Whether an answer has shown that the scheme of the URL is right. */
    private bool $isKnown = false;

    /**
     * @param Secret<string> $url may contain a password
     * @param Secret<array<string, string>> $headers sent with each request
     */
    public function __construct(
        private readonly Secret $url,
        private readonly float $timeout_s,
        private readonly float $connect_timeout_s,
        private readonly Secret $headers,
        private readonly Token $token,
        private readonly Certificates $certificates,
    ) {
    }

    public function __clone(): void
    {
        $this->multi = null;
    }

    /**
     * Sends a request; if the token is refused, and its file now holds another one, sends it again with the new token.
     *
     * @param float $wait_s seconds for which the service may wait before it answers
     * @param (Closure(): bool)|null $giveUp is called repeatedly; once it returns true, the connection is closed
     * @return Response|null null if given up
     * @throws UnreachableException
     */
    public function post(string $body, float $wait_s = 0.0, ?Closure $giveUp = null): ?Response
    {
        $shown = $this->token->shown();
        $response = $this->posted($body, $wait_s, $giveUp, $shown);
        return $response?->status === self::UNAUTHORIZED && $this->token->isReplaced($shown)
            ? $this->posted($body, $wait_s, $giveUp, $this->token->shown())
            : $response;
    }

    /**
     * @param (Closure(): bool)|null $giveUp
     * @param Secret<string|null> $token
     * @throws UnreachableException
     */
    private function posted(string $body, float $wait_s, ?Closure $giveUp, Secret $token): ?Response
    {
        $multi = $this->connection();
        $transfer = new Transfer($body);
        curl_setopt_array($this->easy, [
            CURLOPT_HTTPHEADER => $this->headerLines($token),
            CURLOPT_INFILESIZE => strlen($body),
            // The body is passed by a callback, because curl itself repeats a POST with CURLOPT_POSTFIELDS when a
            // reused connection breaks. It does not repeat what it cannot rewind.
            CURLOPT_READFUNCTION => $transfer->piece(...),
            CURLOPT_HEADERFUNCTION => $transfer->header(...),
            CURLOPT_TIMEOUT_MS => self::milliseconds($this->timeout_s + $wait_s),
        ]);
        curl_multi_add_handle($multi, $this->easy);
        try {
            return $this->finished($multi, $giveUp) ? $this->response($multi, $transfer) : null;
        } finally {
            curl_multi_remove_handle($multi, $this->easy); // closes the connection unless a whole response arrived
            $this->used = Clock::now();
        }
    }

    private function finished(CurlMultiHandle $multi, ?Closure $giveUp): bool
    {
        while (true) {
            curl_multi_exec($multi, $running);
            if ($running === 0) {
                return true;
            }
            if ($giveUp !== null && $giveUp()) {
                curl_multi_exec($multi, $running); // the response may have arrived in the meantime
                return $running === 0;
            }
            curl_multi_select($multi, self::WAIT_S);
        }
    }

    /** @throws UnreachableException */
    private function response(CurlMultiHandle $multi, Transfer $transfer): Response
    {
        $result = curl_multi_info_read($multi)['result'] ?? CURLE_RECV_ERROR;
        if ($result !== CURLE_OK) {
            $message = $result === self::NOT_REWOUND ? 'the connection broke' : Tls::words($this->easy, $result);
            $this->multi = null; // a handle counts broken connections, and reports misleading errors after a few
            throw $this->isTls($result)
                ? new UnreachableException(Tls::SPEAKS, maybe_done: false)
                : new UnreachableException($message, maybe_done: $transfer->isSent());
        }
        $this->isKnown = true;
        $status = curl_getinfo($this->easy, CURLINFO_RESPONSE_CODE);
        return new Response($status, (string) curl_multi_getcontent($this->easy), $transfer->retry_after);
    }

    private function isTls(int $result): bool
    {
        return !$this->isKnown && in_array($result, self::CLOSED, true)
            && preg_match('~^http://~i', $this->url->value()) === 1
            && Tls::isSpokenAt($this->url, self::milliseconds($this->connect_timeout_s));
    }

    private function connection(): CurlMultiHandle
    {
        $idle = Clock::now() - $this->used;
        // A forked process must not use the connection of its parent.
        if ($this->multi === null || $idle > self::IDLE_S || $this->pid !== getmypid()) {
            $this->pid = (int) getmypid();
            $this->easy = $this->prepared();
            $this->multi = curl_multi_init();
        }
        return $this->multi;
    }

    private function prepared(): CurlHandle
    {
        $easy = curl_init();
        curl_setopt_array($easy, $this->certificates->options + [
            CURLOPT_URL => $this->url->value(),
            CURLOPT_PROTOCOLS => CURLPROTO_HTTP | CURLPROTO_HTTPS,
            CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1,
            CURLOPT_RETURNTRANSFER => true,
            CURLOPT_CONNECTTIMEOUT_MS => self::milliseconds($this->connect_timeout_s),
            CURLOPT_NOSIGNAL => true,
            CURLOPT_UPLOAD => true,
            CURLOPT_CUSTOMREQUEST => 'POST',
        ]);
        return $easy;
    }

    /**
     * @param Secret<string|null> $token
     * @return list<string>
     */
    private function headerLines(Secret $token): array
    {
        $lines = ['Content-Type: application/json', 'Expect:'];
        if ($token->value() !== null) {
            $lines[] = "Authorization: Bearer {$token->value()}";
        }
        foreach ($this->headers->value() as $name => $value) {
            $lines[] = $value === '' ? "$name;" : "$name: $value"; // curl drops a header with nothing after `:`
        }
        return $lines;
    }

    private static function milliseconds(float $seconds): int
    {
        return (int) min(max(1.0, ceil($seconds * 1000)), self::MOST_MS); // to curl, 0 means no limit
    }
}
