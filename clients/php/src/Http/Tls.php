<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

use CurlHandle;

/**
 * Says what went wrong with TLS: a certificate, or a URL whose scheme does not match the port.
 *
 * @internal
 */
final class Tls
{
    public const SPEAKS = 'this port speaks TLS: use https://';

    /** OpenSSL's codes: the certificate, or one of its issuers, is self-signed or signed by an unknown authority. */
    private const UNTRUSTED = [2, 18, 19, 20, 21];

    /** What OpenSSL says about bytes that are not TLS. */
    private const NOT_TLS = '/wrong version number|record layer failure|packet length too long|http request/i';

    /** Why a curl request failed, given its error. */
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
     * Return true if the server at an http URL speaks TLS: such a server closes a plain connection without an answer.
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
        // A TLS alert, such as one that asks for a certificate, also proves TLS.
        return curl_exec($easy) !== false || preg_match('/\balert\b/i', curl_error($easy)) === 1;
    }
}
