<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

use InvalidArgumentException;

/**
 * The token that a client sends: where it comes from, its form, and its replacement in a file.
 *
 * @internal
 */
final class Token
{
    private const OURS = '/^jqt_[0-9A-Za-z]{57}$/D';
    private const CHECKSUM_LENGTH = 6;
    private const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

    /** @var Secret<string|null> */
    private Secret $text;

    /**
     * Reads the token from the option `token`, the file `token_file`, or JOBQUEUE_TOKEN.
     *
     * @param bool $isTaken true if the address or the headers have credentials: then JOBQUEUE_TOKEN is not used
     * @throws InvalidArgumentException for a token that cannot be valid, or an unreadable file; never shows the token
     */
    public function __construct(#[\SensitiveParameter] ?string $token, private readonly ?string $file, bool $isTaken)
    {
        $isGiven = $token !== null || $file !== null;
        $token === null || $file === null || throw new InvalidArgumentException('give token or token_file, not both');
        if ($isGiven && $isTaken) {
            throw new InvalidArgumentException('give token, or credentials in the url or the headers, not both');
        }
        $environment = $isGiven || $isTaken ? '' : (string) getenv('JOBQUEUE_TOKEN');
        $this->text = match (true) {
            $token !== null => self::checked($token, 'token'),
            $file !== null => self::read($file),
            $environment !== '' => self::checked($environment, 'JOBQUEUE_TOKEN'),
            default => new Secret(null),
        };
    }

    /**
     * The token, or null if none is sent.
     *
     * @return Secret<string|null>
     */
    public function shown(): Secret
    {
        return $this->text;
    }

    /**
     * Whether the token now differs from the one sent in a request that was refused; reads the file again. A file that
     * is missing, or only half written, changes nothing.
     *
     * @param Secret<string|null> $refused the token that the request sent
     */
    public function isReplaced(Secret $refused): bool
    {
        if ($this->file !== null && $refused->value() === $this->text->value()) {
            try {
                $this->text = self::read($this->file);
            } catch (InvalidArgumentException) {
                return false;
            }
        }
        return $refused->value() !== $this->text->value();
    }

    /** @return Secret<string> */
    private static function read(string $file): Secret
    {
        $text = is_file($file) ? @file_get_contents($file) : false;
        if ($text === false) {
            throw new InvalidArgumentException("token_file: cannot read '$file'");
        }
        return self::checked(trim($text), 'the token in token_file');
    }

    /**
     * A token that begins like the service's tokens must have their form and a correct checksum.
     *
     * @return Secret<string>
     */
    private static function checked(#[\SensitiveParameter] string $text, string $what): Secret
    {
        if (preg_match('/^[!-~]+$/D', $text) !== 1) {
            throw new InvalidArgumentException("$what must be printable ASCII without spaces");
        }
        $isOurs = str_starts_with($text, 'jqt_');
        if ($isOurs && !(preg_match(self::OURS, $text) === 1 && self::hasChecksum($text))) {
            throw new InvalidArgumentException("$what has a typing error: its form or its checksum is wrong");
        }
        return new Secret($text);
    }

    private static function hasChecksum(#[\SensitiveParameter] string $text): bool
    {
        $sum = crc32(substr($text, 0, -self::CHECKSUM_LENGTH));
        $digits = '';
        for ($place = 0; $place < self::CHECKSUM_LENGTH; $place++) {
            $digits = self::DIGITS[$sum % 62] . $digits; // the most significant digit comes first
            $sum = intdiv($sum, 62);
        }
        return $digits === substr($text, -self::CHECKSUM_LENGTH);
    }
}
