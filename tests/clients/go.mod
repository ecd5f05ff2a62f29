// Clients of etcd in other languages, each on etcd and on the service, compared.
module github.com/millrace/millrace/tests/clients

go 1.26.0
