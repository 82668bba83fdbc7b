// Package api has the description of the server's interface: for gRPC the files
// below sandbox/v1, for REST what is generated from them and embedded here. The
// code that speaks it is in sandbox/v1, generated too.
//
// The files change only so that programs written for what was released go on to
// work; scripts/api checks that. New fields of the messages that were there
// before agentfense have numbers from 100 up.
package api

import _ "embed"

//go:generate ../scripts/api generate

// OpenAPI describes the REST interface: a document of OpenAPI 2.0, in JSON.
//
//go:embed openapi.swagger.json
var OpenAPI string
