//! What the processes say to each other, as whoever has been taken over may say it.

mod corpus;
mod properties;
