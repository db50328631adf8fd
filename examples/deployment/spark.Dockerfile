# Spark with the jars of docs/deploy/cluster.md: docker build -f spark.Dockerfile -t registry.example.com/lake/spark:4.1 .
FROM apache/spark:4.1.1
# Fetched beforehand, with their checksums, into jars/: iceberg-spark-runtime-4.1_2.13-1.12.0.jar,
# iceberg-aws-bundle-1.12.0.jar, postgresql-42.7.14.jar, sqlite-jdbc-3.53.4.0.jar
COPY jars/ /opt/lake/jars/
