"""One wheel on many workers: engines that exist score, train and serve with it."""
