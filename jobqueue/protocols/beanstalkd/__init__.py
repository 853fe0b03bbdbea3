"""The protocol of beanstalkd: text lines over TCP, and connections that hold the jobs that they reserved."""
