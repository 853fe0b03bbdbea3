<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

use InvalidArgumentException;

/**
 * The certificates of https connections: they are always checked, and read again for each connection.
 *
 * @internal
 */
final class Certificates
{
    /** For each option, its name in curl and what its file must hold. */
    private const FILES = [
        'ca_file' => [CURLOPT_CAINFO, 'CERTIFICATE'],
        'cert_file' => [CURLOPT_SSLCERT, 'CERTIFICATE'],
        'key_file' => [CURLOPT_SSLKEY, 'PRIVATE KEY'],
    ];

    /** @var array<int, mixed> for curl_setopt_array */
    public readonly array $options;

    /**
     * @param array<string, string|null> $files ca_file, cert_file, key_file: PEM
     * @param list<string> $urls
     * @throws InvalidArgumentException that names the invalid option
     */
    public function __construct(array $files, #[\SensitiveParameter] array $urls)
    {
        $files = array_filter($files, static fn (?string $file): bool => $file !== null);
        if ($files !== [] && preg_grep('~^https://~i', $urls) === []) {
            throw new InvalidArgumentException(key($files) . ' is for https URLs');
        }
        if (isset($files['key_file']) && !isset($files['cert_file'])) {
            throw new InvalidArgumentException('key_file needs cert_file');
        }
        $options = [CURLOPT_SSL_VERIFYPEER => true, CURLOPT_SSL_VERIFYHOST => 2];
        foreach ($files as $name => $file) {
            [$option, $content] = self::FILES[$name];
            self::check($name, $file, $content);
            $options[$option] = $file;
        }
        if (isset($files['cert_file']) && !isset($files['key_file'])) {
            self::check('cert_file', $files['cert_file'], self::FILES['key_file'][1]);
        }
        if (isset($files['ca_file'])) {
            $options[CURLOPT_CAPATH] = '/dev/null'; // no authorities of the system in addition to those of the file
        }
        $this->options = $options;
    }

    private static function check(string $name, string $file, string $content): void
    {
        $text = is_file($file) ? @file_get_contents($file) : false;
        if ($text === false) {
            throw new InvalidArgumentException("$name: cannot read '$file'");
        }
        if (preg_match("/^-----BEGIN [A-Z ]*$content-----/m", $text) !== 1) {
            throw new InvalidArgumentException("$name: '$file' holds no $content in PEM");
        }
    }
}
