/** A feature module: it adds jobs, and registers the handler of its topic. */
import { Injectable, Module, type OnModuleInit } from '@nestjs/common';
import { Client, Worker, type WorkerJob } from 'jobqueue-client';

const topic = 'example-close-order';

interface Order {
  order: string;
}

@Injectable()
export class Orders implements OnModuleInit {
  constructor(private readonly client: Client, private readonly worker: Worker) {}

  onModuleInit(): void {
    this.worker.job<Order>(topic, (job) => this.close(job));
  }

  async place(order: string, time_to_pay: number): Promise<void> {
    await this.client.add(topic, { order }, { id: `${topic}:${order}`, delay: time_to_pay });
  }

  /** If it throws, the job is tried again, after longer and longer pauses. */
  private async close(job: WorkerJob<Order>): Promise<void> {
    console.log(`order ${job.body.order} closed: not paid in time`);
  }
}

@Module({ providers: [Orders] })
export class OrdersModule {}
