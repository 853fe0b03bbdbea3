/** A client and a worker to inject. The worker runs from the application's start to its shutdown. */
import { Global, Module, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { Client, Worker } from 'jobqueue-client';

const url = process.env['JOBQUEUE_URL'] ?? 'http://localhost:8000';

@Global()
@Module({
  providers: [
    { provide: Client, useFactory: () => new Client(url) },
    { provide: Worker, useFactory: () => new Worker(url, { concurrency: 10 }) },
  ],
  exports: [Client, Worker],
})
export class JobQueueModule implements OnApplicationBootstrap, OnModuleDestroy {
  #running: Promise<boolean> | undefined;

  constructor(private readonly client: Client, private readonly worker: Worker) {}

  /** Every onModuleInit is over, so that all handlers are registered. If run() fails, so does the process. */
  onApplicationBootstrap(): void {
    this.#running = this.worker.run();
  }

  /** The first hook of a shutdown: handlers that still run need what later hooks close, such as a database. */
  async onModuleDestroy(): Promise<void> {
    this.worker.stop();
    await this.#running;
    this.client.close();
  }
}
