"use strict";
const place = document.getElementById("swagger-ui");
SwaggerUIBundle({
  url: place.dataset.document,
  domNode: place,
  deepLinking: true,
  persistAuthorization: false,
  tryItOutEnabled: true,
  // The badge would load a picture from a server on the internet.
  validatorUrl: null,
});
