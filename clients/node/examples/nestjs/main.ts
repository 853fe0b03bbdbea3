/** An application without HTTP; one with it begins with NestFactory.create and ends with app.listen. */
import 'reflect-metadata';
import { randomUUID } from 'node:crypto';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';

import { JobQueueModule } from './jobqueue.module.js';
import { Orders, OrdersModule } from './orders.module.js';

@Module({ imports: [JobQueueModule, OrdersModule] })
class AppModule {}

const app = await NestFactory.createApplicationContext(AppModule);
app.enableShutdownHooks(); // without it, SIGTERM ends the process in the middle of its jobs
await app.get(Orders).place(randomUUID().slice(0, 8), 1); // 1800 in real life
