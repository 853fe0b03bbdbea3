<?php

declare(strict_types=1);

namespace JobQueue\Client\Http;

use InvalidArgumentException;

/**
 * The token that a client shows: where it comes from, its form, and its replacement in a file.
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
     * The one in the option `token`, in the file `token_file`, or in JOBQUEUE_TOKEN.
     *
     * @param bool $isTaken the address or the headers have credentials of their own: the environment's are not used
     * @throws InvalidArgumentException for one that cannot be valid, or a file that cannot be read; it never shows it
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
     * The token; null: none is sent.
     *
     * @return Secret<string|null>
     */
    public function shown(): Secret
    {
        return $this->text;
    }

    /**
     * Whether there is another token than the one shown in a request that was refused: the file is read again. A file
     * that is missing, or only half written, changes nothing.
     *
     * @param Secret<string|null> $refused what that request has shown
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
     * One that begins as the service's do must have their form and its checksum.
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
            $digits = self::DIGITS[$sum % 62] . $digits; // the most significant one comes first
            $sum = intdiv($sum, 62);
        }
        return $digits === substr($text, -self::CHECKSUM_LENGTH);
    }
}
