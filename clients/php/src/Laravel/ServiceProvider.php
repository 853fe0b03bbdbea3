<?php

declare(strict_types=1);

namespace JobQueue\Client\Laravel;

use Illuminate\Queue\QueueManager;

/** Makes the driver `jobqueue` known to Laravel's queues. With Composer, Laravel finds this class by itself. */
final class ServiceProvider extends \Illuminate\Support\ServiceProvider
{
    public function register(): void
    {
        $this->callAfterResolving('queue', static function (QueueManager $queues): void {
            $queues->addConnector('jobqueue', static fn (): Connector => new Connector());
        });
    }
}
