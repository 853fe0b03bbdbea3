<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

use CurlHandle;

/**
 * What went wrong with TLS, in words: a certificate, or a URL whose scheme is not that of the port.
 *
 * @internal
 */
final class Tls
{
    public const SPEAKS = 'this port speaks TLS: use https://';

    /** By OpenSSL: the certificate, or one that it was issued by, is signed by itself or by an unknown authority. */
    private const UNTRUSTED = [2, 18, 19, 20, 21];

    /** What OpenSSL says of bytes that are not TLS. */
    private const NOT_TLS = '/wrong version number|record layer failure|packet length too long|http request/i';

    /** Why a request of curl failed, by its error. */
    public static function words(CurlHandle $easy, int $error): string
    {
        $message = curl_error($easy);
        if ($error === CURLE_SSL_CACERT) {
            $detail = str_replace('SSL certificate problem: ', '', $message);
            return in_array(curl_getinfo($easy, CURLINFO_SSL_VERIFYRESULT), self::UNTRUSTED, true)
                ? "the certificate is not trusted ($detail): ca_file names the authority to trust"
                : "the certificate is not valid: $detail";
        }
        $isPlain = $error === CURLE_SSL_CONNECT_ERROR && preg_match(self::NOT_TLS, $message) === 1;
        return $isPlain ? 'this port does not speak TLS: use http://' : $message;
    }

    /**
     * Return true if what listens at an http URL speaks TLS: it closes a plain connection without a word.
     *
     * @param Secret<string> $url
     */
    public static function isSpokenAt(Secret $url, int $within_ms): bool
    {
        $parts = (array) parse_url($url->value());
        $easy = curl_init("https://{$parts['host']}:" . ($parts['port'] ?? 80));
        curl_setopt_array($easy, [
            CURLOPT_CONNECT_ONLY => true,
            CURLOPT_RETURNTRANSFER => true,
            CURLOPT_CONNECTTIMEOUT_MS => $within_ms,
            CURLOPT_NOSIGNAL => true,
            CURLOPT_SSL_VERIFYPEER => false, // nothing is sent
            CURLOPT_SSL_VERIFYHOST => 0,
        ]);
        // An alert: such as that a certificate is wanted.
        return curl_exec($easy) !== false || preg_match('/\balert\b/i', curl_error($easy)) === 1;
    }
}
