export class Worker {}
