# dbt, sparkwap and the project: docker build -f dbt.Dockerfile -t registry.example.com/lake/dbt:1 <folder of the project>
FROM python:3.12-slim
# There is no release yet: put a wheel into wheels/ (`scripts/dist` in a checkout of sparkwap makes one).
COPY wheels/ /wheels/
# pyspark-client: not newer than the server's Spark, or it is refused.
RUN pip install --no-cache-dir "$(ls /wheels/*.whl)[connect,postgres,metrics,page]" pyspark-client==4.1.1
COPY . /lake
WORKDIR /lake
# Not root; the group of the volumes is `fsGroup` of the pods.
USER 1000:1000
