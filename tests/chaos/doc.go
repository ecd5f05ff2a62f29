// Package chaos runs three or five processes of examples/kv that talk over TLS, each in a network namespace
// of its own, disturbs them in every way that a machine allows without a reboot, and checks what their
// clients saw. A seed draws which disturbances an episode has, when they begin and how long they take;
// several are under way at a time. After each episode everything is mended, and the cluster must work and be
// level within stated times. It does the same with processes of millrace serve and etcd's clients.
// docs/internals/chaos.md says how to run and to replay it, and what each disturbance expects.
package chaos
