// Package api describes the server's API: for gRPC the files below sandbox/v1, for REST the
// embedded document that is generated from them. The generated code is in sandbox/v1.
//
// Programs for a released version keep working after every change of the files; scripts/api checks
// that. New fields of messages of the original API have numbers from 100.
package api

import _ "embed"

//go:generate ../scripts/api generate

// OpenAPI describes the REST interface: a document of OpenAPI 2.0, in JSON.
//
//go:embed openapi.swagger.json
var OpenAPI string
